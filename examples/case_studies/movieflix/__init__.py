"""MovieFlix: a video service that knows where each viewer stopped and what they like, as it happens."""

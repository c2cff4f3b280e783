"""MySocialMedia: posts, likes and comments, counted exactly while a campaign day rains on them."""

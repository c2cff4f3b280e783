"""Types of a service; they import no other part of `busway.app`."""

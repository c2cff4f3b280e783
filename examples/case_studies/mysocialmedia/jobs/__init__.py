"""Spark jobs of MySocialMedia. What does not live here: the rules of the live path (`mysocialmedia.domain`)."""

"""Spark jobs of MySocialMedia. Not here: the rules of the live path (`mysocialmedia.domain`)."""

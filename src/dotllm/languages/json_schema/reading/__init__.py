"""Reads schema documents into normal forms: the meaning of each keyword, for each dialect."""

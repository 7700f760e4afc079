"""Bugs of vLLM that constrained requests meet, a file each."""

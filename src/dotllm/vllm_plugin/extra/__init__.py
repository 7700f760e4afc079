"""Features of our own; one that fails is left out."""

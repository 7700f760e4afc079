"""Mask rows live in a table on the device; a step sends their numbers."""

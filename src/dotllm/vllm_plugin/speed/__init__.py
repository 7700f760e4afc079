"""The same masks, in less time."""

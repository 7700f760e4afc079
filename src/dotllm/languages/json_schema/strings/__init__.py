"""Sets of strings, and how they are written."""

"""Sets of numbers, and how they are written."""

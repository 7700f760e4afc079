"""Indexes at hand: in memory, on disk, in a shared store; and what failed."""

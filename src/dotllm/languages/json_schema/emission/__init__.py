"""Emission: turns normal forms into rules of a grammar, and decides how documents are written."""

"""Array constraints → automata over items."""

"""Object constraints → automata over members."""

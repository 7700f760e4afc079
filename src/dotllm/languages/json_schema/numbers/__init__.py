"""Numbers: sets of rationals (bounds, multiples, exceptions), and the automata of their JSON texts."""

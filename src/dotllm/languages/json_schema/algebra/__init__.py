"""∧, ∨, ¬ on the normal forms of schemas."""

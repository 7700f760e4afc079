"""The Boolean algebra (∧, ∨, ¬) on the normal forms of schemas; allOf, anyOf, oneOf and not are its operations."""

"""The Boolean algebra (∧, ∨, ¬) on the normal forms of schemas, which allOf, anyOf, oneOf and not become."""

"""The minimum: constraints are enforced, or refused with the reason."""

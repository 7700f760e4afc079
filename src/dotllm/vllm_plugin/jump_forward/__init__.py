"""Text that the constraint forces is not generated token by token."""

"""Canonical coalescence: forced text has one spelling, and is entered into requests."""

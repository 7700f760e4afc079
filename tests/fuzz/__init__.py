"""Fuzzing with one command: `make fuzz MINUTES=10` (see `tests.fuzz.driver`; `tests.fuzz.targets` has the targets)."""

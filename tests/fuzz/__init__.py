"""Fuzzing by one command: `make fuzz MINUTES=10` (see `tests.fuzz.driver`; what it feeds: `tests.fuzz.targets`)."""

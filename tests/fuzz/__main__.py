"""`python -m tests.fuzz`: see `tests.fuzz.driver`."""

from tests.fuzz.driver import main

main()

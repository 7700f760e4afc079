"""A regular expression, and one of several texts: ``python examples/regex_and_choice.py``."""

from __future__ import annotations

import re

from loop import vocabulary, write

from dotllm import Index

# The whole text must match; look-around and \b are supported (docs/regex.md).
PHONE = r"\+[1-9][0-9]{1,2}( [0-9]{2,4}){3}"
PASSWORD = r"(?=.*[0-9])(?=.*[a-z])[a-z0-9]{8}"

if __name__ == "__main__":
    for pattern in (PHONE, PASSWORD):
        text = write(Index.from_regex(pattern, vocabulary()))
        assert re.fullmatch(pattern, text)
        print(text)
    print(write(Index.from_choice(["four", "fourteen", "forty"], vocabulary())))

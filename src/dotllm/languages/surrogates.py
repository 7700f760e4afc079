"""Halves of surrogate pairs. JSON's "\\ud800" arrives in a Python string as one; no Unicode text contains them."""

from __future__ import annotations

import re

HALF = re.compile("[\ud800-\udfff]")


def is_unicode(text: str) -> bool:
    """Whether no half of a surrogate pair is in ``text``."""
    return text.isascii() or HALF.search(text) is None

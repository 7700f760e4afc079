"""Spelling bytes the way the model's own tokenizer does.

Tokenizers read whole texts, and some put a space before them. A piece of a generated text does not begin a text, and
may end inside a character. So `spell_canonically` tokenises the longest part that is UTF-8 and compares the bytes. If
the tokenizer has added a space, it tries again behind an anchor, and drops the anchor's tokens.
"""

from __future__ import annotations

from collections.abc import Callable

ANCHORS = ("", "\n", ".")
"""Texts put before the one to spell; all of them are tokens that do not merge with most texts."""


def spell_canonically(
    text: bytes, encode: Callable[[str], list[int]], spelling: Callable[[int], bytes | None]
) -> tuple[list[int], int]:
    """Ids of the tokenizer's own spelling of a prefix of ``text``, and the length of that prefix.

    The prefix ends where ``text`` stops being UTF-8. It is empty if the tokenizer does not spell it exactly, as one
    that normalises may not. ``spelling`` gives the bytes of an id, None for an id that stands for no text.
    """
    try:
        prefix = text.decode()
    except UnicodeDecodeError as error:
        prefix = text[: error.start].decode()
    wanted = prefix.encode()
    for anchor in ANCHORS if wanted else ():
        ids = encode(anchor + prefix)
        strings = [spelling(i) for i in ids]
        dropped = sum(len(string or b"") for string in strings) - len(wanted)
        first = 0
        while first < len(ids) and dropped > 0:
            dropped -= len(strings[first] or b"")
            first += 1
        rest = strings[first:]
        if dropped == 0 and None not in rest and b"".join(string or b"" for string in rest) == wanted:
            return ids[first:], len(wanted)
    return [], 0

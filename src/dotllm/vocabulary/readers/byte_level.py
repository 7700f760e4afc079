"""Byte-level BPE: every byte is written as one printable character, so that vocabularies can be text files.

The alphabet is the one of GPT-2 (Radford et al. 2019, ``bytes_to_unicode`` of its encoder): printable Latin-1
characters stand for themselves, the other 68 bytes for U+0100, U+0101 … in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTE_OF = np.full(0x100 + len(_OTHERS) + 1, -1, np.int16)  # by code point; the last entry is any larger code point
_BYTE_OF[_PRINTABLE] = _PRINTABLE
_BYTE_OF[0x100:-1] = _OTHERS


def decode_byte_level(strings: Sequence[str]) -> list[bytes]:
    """The bytes of each string. A string with a character outside the alphabet stands for its own UTF-8 text."""
    code_points = np.frombuffer("".join(strings).encode("utf-32-le"), np.uint32)
    values = _BYTE_OF[np.minimum(code_points, len(_BYTE_OF) - 1)]
    raw = values.astype(np.uint8).tobytes()
    ends = np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings))).tolist()
    decoded = [raw[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    for position in np.flatnonzero(values < 0).tolist():
        index = int(np.searchsorted(ends, position, side="right"))
        decoded[index] = strings[index].encode()
    return decoded

"""Tries and tables kept on disk by the fingerprint of their vocabulary.

Nothing depends on it: a file that is missing, damaged or of another version is made again, and if the disk cannot be
written (read-only, full) the next process builds what this one built.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm.charset import CharSet
from dotllm.system.cache_directory import user_cache_directory
from dotllm.vocabulary.array_file import DamagedFile, read_arrays, write_arrays
from dotllm.vocabulary.charset_table import CharsetTable
from dotllm.vocabulary.trie import Trie

LAYOUT = 1
"""Raised whenever the meaning of the arrays changes."""
logger = logging.getLogger(__name__)
_Arrays = Mapping[str, NDArray[Any]]


class VocabularyFiles:
    """Those of one vocabulary."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self._directory = user_cache_directory() / "vocabulary" / fingerprint[:32]

    def load_trie(self) -> Trie | None:
        """The trie of all tokens, None if it is not there."""
        arrays = self._read("trie", "")
        return None if arrays is None else _trie("", arrays)

    def store_trie(self, trie: Trie) -> None:
        """Keep the trie of all tokens."""
        self._write("trie", "", _trie_arrays("", trie))

    def load_table(self, charset: CharSet) -> CharsetTable | None:
        """The table of a character set, None if it is not there."""
        arrays = self._read("charset", _digest(charset))
        return None if arrays is None else _table(arrays)

    def store_table(self, charset: CharSet, table: CharsetTable) -> None:
        """Keep the table of a character set."""
        self._write("charset", _digest(charset), _table_arrays(table))

    def _place(self, what: str, key: str) -> tuple[Path, str]:
        name = f"{what}-{key[:32]}" if key else what
        return self._directory / f"{name}.{LAYOUT}", f"{what} {LAYOUT} {self._fingerprint} {key}"

    def _read(self, what: str, key: str) -> _Arrays | None:
        path, kind = self._place(what, key)
        try:
            return read_arrays(path, kind)
        except FileNotFoundError:
            return None
        except (OSError, DamagedFile) as error:
            logger.warning("Ignoring a file of the vocabulary cache, it will be made again: %s", error)
            return None

    def _write(self, what: str, key: str, arrays: _Arrays) -> None:
        path, kind = self._place(what, key)
        try:
            write_arrays(path, kind, arrays)
        except OSError as error:
            logger.info("Cannot keep a vocabulary on disk, the next start will build it again: %s", error)


def _digest(charset: CharSet) -> str:
    return hashlib.sha256(np.array(charset.ranges, "<i4").tobytes()).hexdigest()


def _trie_arrays(prefix: str, trie: Trie) -> dict[str, NDArray[Any]]:
    return {prefix + name: array for name, array in trie._asdict().items()}


def _trie(prefix: str, arrays: _Arrays) -> Trie:
    return Trie(*(arrays[prefix + name] for name in Trie._fields))


_TRIES = ("exits", "exits_by_count")
_PLAIN = ("rows", "long_tokens", "long_chars", "exits_by_count_start")


def _table_arrays(table: CharsetTable) -> dict[str, NDArray[Any]]:
    arrays = {name: getattr(table, name) for name in _PLAIN}
    arrays["max_chars"] = np.array([table.max_chars], np.int64)
    for name in _TRIES:
        arrays.update(_trie_arrays(f"{name}.", getattr(table, name)))
    return arrays


def _table(arrays: _Arrays) -> CharsetTable:
    fields: dict[str, Any] = {name: arrays[name] for name in _PLAIN}
    fields.update({name: _trie(f"{name}.", arrays) for name in _TRIES})
    return CharsetTable(**fields, max_chars=int(arrays["max_chars"][0]))

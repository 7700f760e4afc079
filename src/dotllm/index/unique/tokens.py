"""What is derived once from a vocabulary: tokens that may hold more than one item, and the children of trie nodes."""

from __future__ import annotations

import re
import weakref
from functools import cached_property
from typing import ClassVar

import numpy as np

from dotllm.arrays import Int32
from dotllm.vocabulary import Vocabulary

# A comma, also behind the quote of a string that one is inside of, or behind the bracket.
_GOES_ON = re.compile(rb",")
_LEAVES_AND_GOES_ON = re.compile(rb'".*,', re.DOTALL)
_OPENS_AND_GOES_ON = re.compile(rb"[\[{].*,", re.DOTALL)
_OPENS = re.compile(rb"[\[{]")
_BREAKS = re.compile(rb'["\\]')

ROOT = -1


class Tokens:
    """What is derived from one vocabulary (`of`)."""

    _known: ClassVar[weakref.WeakKeyDictionary[Vocabulary, Tokens]] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Tokens:
        """The tokens of ``vocabulary``."""
        found = cls._known.get(vocabulary)
        if found is None:
            found = cls._known[vocabulary] = cls(vocabulary)
        return found

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.trie = vocabulary.trie
        self._words = vocabulary.words
        self._data = vocabulary.token_data.tobytes()
        self._offset = vocabulary.token_offset
        self._children: dict[int, dict[int, int]] = {}
        self._ending: dict[int, list[int]] = {}

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token; b"" if it stands for no text."""
        return self._data[self._offset[token] : self._offset[token + 1]]

    @cached_property
    def going_on(self) -> Int32:
        """Bitmask: tokens with a comma."""
        return self._matching(_GOES_ON, b",")

    @cached_property
    def leaving(self) -> Int32:
        """Bitmask: tokens in which a comma follows a quote."""
        return self._matching(_LEAVES_AND_GOES_ON, b'"')

    @cached_property
    def opening(self) -> Int32:
        """Bitmask: tokens in which a comma follows an opening bracket."""
        return self._matching(_OPENS_AND_GOES_ON, b",")

    @cached_property
    def with_brackets(self) -> Int32:
        """Bitmask: tokens with an opening bracket."""
        return self._matching(_OPENS, b"[") | self._matching(_OPENS, b"{")

    @cached_property
    def breaking(self) -> Int32:
        """Bitmask: tokens that do not merely go on in a string: with a quote or a backslash."""
        return self._matching(_BREAKS, b'"') | self._matching(_BREAKS, b"\\")

    def children(self, node: int) -> dict[int, int]:
        """The children of a node of the token trie, by byte."""
        found = self._children.get(node)
        if found is None:
            trie = self.trie
            at, end = (0, len(trie.byte)) if node == ROOT else (node + 1, int(trie.end[node]))
            found = {}
            while at < end:
                found[int(trie.byte[at])] = at
                at = int(trie.end[at])
            self._children[node] = found
        return found

    @cached_property
    def behind_blanks(self) -> dict[int, list[tuple[bytes, int]]]:
        """Byte of JSON's structure → (white space, node) for the nodes that are reached by it behind white space."""
        out: dict[int, list[tuple[bytes, int]]] = {}
        agenda = [(b"", ROOT)]
        while agenda:
            blank, node = agenda.pop()
            for byte, child in self.children(node).items():
                if byte in b" \t\n\r":
                    agenda.append((blank + bytes((byte,)), child))
                elif byte in b'"{}[],:-0123456789tfn':
                    out.setdefault(byte, []).append((blank, child))
        return out

    def ending_at(self, node: int) -> list[int]:
        """The tokens that end at a node."""
        found = self._ending.get(node)
        if found is None:
            start = self.trie.token_start
            found = self._ending[node] = self.trie.tokens[start[node] : start[node + 1]].tolist()
        return found

    def below(self, node: int) -> Int32:
        """The tokens that end at a node or behind it."""
        start = self.trie.token_start
        return self.trie.tokens[start[node] : start[int(self.trie.end[node])]]

    def _matching(self, pattern: re.Pattern[bytes], needed: bytes) -> Int32:
        """Bitmask of the tokens in which ``pattern`` matches. Only tokens with the byte ``needed`` are tried."""
        members = np.zeros(self._words * 32, np.uint8)
        at = np.flatnonzero(np.frombuffer(self._data, np.uint8) == needed[0])
        candidates = np.unique(np.searchsorted(self._offset, at, side="right") - 1)
        for token in candidates.tolist():
            if pattern.search(self.bytes_of(token)):
                members[token] = 1
        return np.packbits(members, bitorder="little").view(np.int32)


def listed(mask: Int32) -> list[int]:
    """The tokens of a bitmask."""
    words = np.flatnonzero(mask)
    bits = np.unpackbits(mask[words].view(np.uint8), bitorder="little").reshape(-1, 32)
    rows, columns = np.nonzero(bits)
    return [int(t) for t in words[rows] * 32 + columns]

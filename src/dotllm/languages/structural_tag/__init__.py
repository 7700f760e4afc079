"""Structural tags: free text and formatted parts, as tool and reasoning parsers ask for them
(docs/structural-tags.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.languages.structural_tag.build import structural_tag_to_grammar

__all__ = ["structural_tag_to_grammar"]

__getattr__, __dir__ = exports(__name__, build="structural_tag_to_grammar")

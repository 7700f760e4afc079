"""Structural tags: free text and formatted parts, as tool and reasoning parsers ask for them
(docs/structural-tags.md)."""

from dotllm.languages.structural_tag.build import structural_tag_to_grammar

__all__ = ["structural_tag_to_grammar"]

"""Structural tags: free text and formatted parts, as tool and reasoning parsers ask for them
(docs/structural-tags.md)."""

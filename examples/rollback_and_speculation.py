"""Drafts under a constraint: how many tokens fit, and how to take them back: ``…/rollback_and_speculation.py``."""

from __future__ import annotations

from loop import vocabulary

from dotllm import Index

if __name__ == "__main__":
    words = vocabulary()
    guide = Index.from_regex(r'\{"temperature": -?[0-9]{1,2}\}', words).guide()

    # Text that the constraint forces needs no model.
    print("forced:", guide.forced_bytes())
    for token in guide.forced_tokens():
        guide.advance(token)

    # A draft of several tokens: how many of them fit?
    draft = words.encode(b"21 degrees")
    fits = guide.accepts(draft)
    print(f"{fits} of {len(draft)} draft tokens fit")
    for token in draft[:fits]:
        guide.advance(token)

    # The model rejects the draft: go back to where it began. The fork stays after the draft.
    other = guide.fork()
    guide.rollback(fits)
    print("may end:", guide.can_finish, "and the fork:", other.forced_bytes())

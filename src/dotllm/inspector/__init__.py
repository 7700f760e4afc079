"""The inspector: a page that shows what a specification allows at each place of a text, and why it forbids the rest.

`inspector` answers the page's questions through the engine's public API; each question is a method from a JSON object
to a JSON object. `continuations`, `outline` and `confidence` are its parts. `server` puts the page into one file and
serves it on this machine. The page itself is in ``static``.
"""

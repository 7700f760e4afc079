"""The inspector: a page that shows what a specification allows at each place of a text, and why the rest may not come.

`inspector` answers the page's questions, each a method from a JSON object to a JSON object, over the public API of the
engine; `continuations`, `json_place`, `outline` and `samples` are what it is made of. `page` puts the page into one
file, and `server` serves it on this machine. The page itself is in ``static``.
"""

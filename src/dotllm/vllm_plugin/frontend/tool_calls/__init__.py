"""Tools: constraints of calls, and what parsers read back from them."""

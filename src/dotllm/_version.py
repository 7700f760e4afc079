"""The version, in a file that imports nothing: keys of caches and `dotllm` itself take it from here."""

__version__ = "0.1.0"

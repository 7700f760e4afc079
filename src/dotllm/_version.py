"""The version, in a file that imports nothing: keys of caches and `dotllm` itself read it here."""

__version__ = "0.1.0"

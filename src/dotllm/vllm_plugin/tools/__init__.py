"""Tool calls that vLLM's parsers read back whole."""

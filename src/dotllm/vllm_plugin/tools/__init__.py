"""Tool calls that vLLM's parsers read back completely."""

"""Twins: the same requests to plain vLLM and to dotllm, whose answers must be alike (docs/testing.md)."""

"""Twins: the same requests to plain vLLM and to dotllm, whose answers must match (docs/testing.md)."""

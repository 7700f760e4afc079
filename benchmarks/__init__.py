"""Benchmarks against the field's engines, run as modules: ``python -m benchmarks.engine`` (docs/benchmarks.md)."""

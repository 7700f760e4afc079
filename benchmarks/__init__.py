"""Benchmarks against the field's other engines, run as modules: ``python -m benchmarks.engine`` (docs/benchmarks.md)."""

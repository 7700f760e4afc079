"""Benchmarks against the field's other engines. Run as modules: ``python -m benchmarks.engine`` (see docs/benchmarks.md)."""

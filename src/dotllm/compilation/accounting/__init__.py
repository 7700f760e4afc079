"""Metrics of compilation, and how they reach Prometheus."""

"""Requests of a process to its machine: CPUs, a cache directory, memory committed late, work in the background."""

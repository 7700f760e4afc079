"""Compiles elsewhere than on a thread of this process: in processes, on a Ray cluster."""

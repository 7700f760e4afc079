"""Compiles in flight: tickets and jobs, their queue, the threads that run them, and their supervisor."""

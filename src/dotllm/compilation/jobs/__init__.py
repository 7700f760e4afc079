"""Compiles in flight: who waits for which, the queue, the threads that run them, who looks after them."""

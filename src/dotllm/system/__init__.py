"""What a process asks of its machine: CPUs, a cache directory, memory that is used late, work in the background."""

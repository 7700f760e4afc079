"""Forced text is entered into requests instead of generated token by token (``--dotllm-coalescence canonical``)."""

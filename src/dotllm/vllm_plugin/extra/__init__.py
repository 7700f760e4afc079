"""Features that vLLM does not have; if one does not fit, it is left out."""

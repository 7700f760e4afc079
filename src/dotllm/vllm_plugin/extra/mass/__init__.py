"""The probability that the masks leave, token by token, and the confidence of an answer's values."""

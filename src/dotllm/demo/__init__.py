"""A model for a first look and for tests, made on the spot in seconds: no download. Its weights are random, so it
writes nonsense; under a constraint its nonsense is exactly what was asked for.
"""

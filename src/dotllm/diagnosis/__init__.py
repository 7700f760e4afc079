"""Explains why a document does not fit its schema, and writes refusals for people and programs.

This module imports nothing: a server's front end needs the fields of an error, but no kernels.
"""

"""The API server: a request becomes a specification, is validated, and is sent to the engine."""

"""Normal forms → rules of a grammar, and how documents are written."""

"""Schema documents → normal forms: what each keyword means."""

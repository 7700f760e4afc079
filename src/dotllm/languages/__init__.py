"""The languages of specifications: each package or module turns its notation into a `Grammar` or refuses it with a
named error."""

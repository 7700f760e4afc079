"""The notations of specifications, each as a Grammar."""

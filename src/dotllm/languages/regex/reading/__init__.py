"""Regular expressions → syntax trees."""

"""The stages, one script each."""

"""The commands behind `python -m pipeline COMMAND`."""

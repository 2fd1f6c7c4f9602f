"""One module per command of `python -m pipeline COMMAND`."""

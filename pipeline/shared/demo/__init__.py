"""What `python -m pipeline demo` consists of: models from three sources, their answers, the server and its page."""

"""Code that stages and commands share. It cannot change a result, so no stage depends on it."""

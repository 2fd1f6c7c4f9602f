"""What stages and commands share. Nothing here can change a result, so no stage depends on it."""

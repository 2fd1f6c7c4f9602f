"""Code that the stages train and back_translate share. It can change a result, so both stages depend on it."""

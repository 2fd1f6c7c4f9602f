"""Encoder-decoder Transformers for translation: text, model, training, decoding, serving."""

import os

# Threads of torch's pool wait for each other a moment, then sleep. By default they spin for milliseconds, and on a
# machine where anything else runs a small model takes several times longer for it. Set before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

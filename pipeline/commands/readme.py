"""The name of `python -m pipeline docs` in version 0.1; version 0.3 drops it."""

import sys

from pipeline.commands.docs import main
from pipeline.shared.stage import run

if __name__ == "__main__":
    print("python -m pipeline.readme is now: python -m pipeline docs", file=sys.stderr)
    run(main)

"""Write the HTML page that `dvc plots show` fills, so that its plots need no network. `make setup` runs this once.

    python -m pipeline plots_template

Writes  .dvc/plots.html, which .dvc/config names
"""

from pathlib import Path

from transformer.files import write_text
from transformer.reporting.page import plots_template


def main() -> None:
    write_text(Path(".dvc/plots.html"), plots_template())

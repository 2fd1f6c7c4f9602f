"""Write the HTML page that `dvc plots show` fills, so that its plots need no network. `make setup` runs this once.

    python -m pipeline plots_template

Writes  .dvc/plots.html, which .dvc/config names
"""

from pathlib import Path

from pipeline.shared.stage import renamed
from transformer.files import whole_file
from transformer.reporting.page import plots_template


def main() -> None:
    with whole_file(Path(".dvc/plots.html")) as temporary:
        temporary.write_text(plots_template(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    renamed("plots_template", main)

"""Write .dvc/plots.html, the page around `dvc plots show`, which then needs no network. `make setup` runs this once.

Reads   nothing    Writes  .dvc/plots.html (named in .dvc/config)    Params  none
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

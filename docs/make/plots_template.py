"""Write the HTML page that `dvc plots show` fills, so that its plots need no network. `make setup` runs this once.

    python -m pipeline plots_template

Writes  .dvc/plots.html, and its name into .dvc/config.local. Without it DVC's plots load a library from the network
"""

import argparse
import subprocess
import sys
from pathlib import Path

from transformer.files import write_text
from transformer.reporting.page import plots_template


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    write_text(Path(".dvc/plots.html"), plots_template())
    dvc = (sys.executable, "-m", "dvc", "config")
    subprocess.run([*dvc, "--quiet", "--local", "plots.html_template", "plots.html"], check=True)

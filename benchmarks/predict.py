"""How long the paper's models would train on many GPUs: the model of step_time, fitted, and its errors, as a page.

python -m benchmarks.predict                                     # prints the page
python -m benchmarks.predict --page docs/scaling.md              # writes it
python -m benchmarks.predict --measure --page docs/scaling.md    # measures 1, 2 and 4 processes first
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.scaling_page import page
from benchmarks.step_measure import input_costs, machine, measure
from transformer.files import write_json, write_text

PLANS = ((8, 25_000, 3000), (8, 25_000, 3282), (64, 25_000, 411), (64, 192_000, 3150), (256, 768_000, 3150))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--measure", action="store_true", help="measure this machine, and keep it in --json; under 5 minutes")
    add("--rounds", type=int, default=5, metavar="N", help="rounds of the measurement at most")
    add("--json", type=Path, default=Path("docs/scaling.json"), metavar="FILE", help="what was measured")
    add("--gpu", type=Path, default=Path("docs/gpu.json"), metavar="FILE", help="speeds of this project on a GPU")
    add("--page", type=Path, metavar="FILE", help="write the page, as docs/scaling.md")
    given = parser.parse_args()
    if given.measure:
        write_json(given.json, {"machine": machine(), "processes": measure(given.rounds), "input": input_costs(PLANS)})
    text = page(*(json.loads(path.read_text(encoding="utf-8")) for path in (given.json, given.gpu)))
    if given.page:
        write_text(given.page, text)
    else:
        print(text)


if __name__ == "__main__":
    main()

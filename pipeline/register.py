"""Stage register: the model as a version in MLflow's registry, with its card; the best on valid is the champion.

Reads   data/model, data/raw, data/{valid,test}.hyp, reports/scores.json, reports/signatures.json
Writes  nothing here: the model goes to the MLflow row of this configuration and to the registry
Params  every one: each configuration is a version
"""

import json
from pathlib import Path

from pipeline.stage import arguments, keys, origin, project_root, require, run
from transformer.files import read_lines, sha256
from transformer.params import Params
from transformer.registry import model_card, register


def main() -> None:
    paths = arguments(
        __doc__, raw="data/raw", valid="data/valid.hyp", test="data/test.hyp", model="data/model",
        scores="reports/scores.json", signatures="reports/signatures.json",
    )  # fmt: skip
    params = Params.load(paths.params)
    require(paths.raw, paths.valid, paths.test, paths.model, paths.scores, paths.signatures)
    scores, signatures = (json.loads(path.read_text(encoding="utf-8")) for path in (paths.scores, paths.signatures))
    train_key, config_key = keys(params, paths.model, raw=paths.raw, valid=paths.valid, test=paths.test)
    name = f"{params.corpus}-{params.source}-{params.target}"
    files = {side: paths.raw / f"valid.{side}" for side in ("src", "tgt")}
    card = model_card(
        name, (params.source, params.target), vars(params), scores, signatures, described(paths.raw),
        {"train_key": train_key, "config_key": config_key, **origin()},
    )  # fmt: skip
    valid_sha256 = "".join(sha256(path) for path in files.values())
    options = params.only("beam_size", "length_penalty", "extra_length")
    told = register(project_root(), name, paths.model, options, config_key, scores["valid_bleu"], valid_sha256, card)
    print(told or "not registered")


def described(raw: Path) -> dict[str, str]:
    """Lines and sha256 of every file of the corpus."""
    return {path.name: f"{sum(1 for _ in read_lines(path)):,} lines, sha256 {sha256(path)}"
            for path in sorted(raw.iterdir())}  # fmt: skip


if __name__ == "__main__":
    run(main)

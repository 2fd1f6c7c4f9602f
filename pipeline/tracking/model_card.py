"""The model card: use, limits, scores, data, origin and params of a model."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.tracking.content import FinishedRun

CARD = """# {name}, {valid_bleu:.1f} BLEU on valid

Translates {source} to {target}, one sentence per line, with an encoder-decoder Transformer.

    python -m pipeline serve {name}
    curl localhost:5001/invocations --json '{{"inputs": ["..."]}}'

`mlflow models serve` would execute the code in this model as it is stored now. The command above, in a
clone of the project, compares weights and code with DVC's and git's hashes before it starts them.

The model has learned from its training text only. Expect worse translations than the scores show for
text of other domains and for sentences much longer than those of the training text.
"""


def model_card(
    name: str,
    scores: Mapping[str, float],
    signatures: Mapping[str, str],
    finished: FinishedRun,
    origin: Mapping[str, str],
) -> str:
    """The card of a registered model, in Markdown.

    scores, signatures: score name -> value, and -> sacreBLEU signature if it has one. origin: keys, git commit, ...
    """
    params = finished.params
    signed = {key: f"{value} {signatures.get(key, '')}".strip().replace("|", "\\|") for key, value in scores.items()}
    data = {str(file["name"]): f"{file['lines']:,} lines, sha256 {file['sha256']}" for file in finished.datasets}
    text = CARD.format(name=name, valid_bleu=scores["valid_bleu"], source=params["source"], target=params["target"])
    for head, rows in (("score", signed), ("data", data), ("origin", origin), ("param", params)):
        lines = "".join(f"| {key} | {value} |\n" for key, value in rows.items())
        text += f"\n| {head} | |\n| --- | --- |\n{lines}"
    return text

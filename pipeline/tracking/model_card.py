"""The model card: languages, use, limits, scores, data, origin and params of a model."""

from __future__ import annotations

from collections.abc import Mapping


def model_card(
    name: str,
    languages: tuple[str, str],
    params: Mapping[str, object],
    scores: Mapping[str, float],
    signatures: Mapping[str, str],
    data: Mapping[str, str],  # file name -> "12,345 lines, sha256 ..."
    origin: Mapping[str, str],
) -> str:
    """The card of a registered model, in Markdown.

    scores, signatures: score name -> value, and -> sacreBLEU signature if it has one. origin: keys, git commit, ...
    """

    def table(head: str, rows: Mapping[str, object]) -> list[str]:
        lines = [f"| {key} | {value} |" for key, value in rows.items()]
        return [f"| {head} | |", "| --- | --- |", *lines, ""]

    source, target = languages
    signed = {key: f"{value} {signatures.get(key, '')}".strip().replace("|", "\\|") for key, value in scores.items()}
    return "\n".join(
        [
            f"# {name}, {scores['valid_bleu']:.1f} BLEU on valid",
            "",
            f"Translates {source} to {target}, one sentence per line, with an encoder-decoder Transformer.",
            "",
            f"    python -m pipeline serve {name}",
            '    curl localhost:5001/invocations --json \'{"inputs": ["..."]}\'',
            "",
            "`mlflow models serve` would execute the code in this model as it is stored now. The command above, in a",
            "clone of the project, compares weights and code with DVC's and git's hashes before it starts them.",
            "",
            "The model has learned from its training text only. Expect worse translations than the scores show for",
            "text of other domains and for sentences much longer than those of the training text.",
            "",
            *table("score", signed),
            *table("data", data),
            *table("origin", origin),
            *table("param", params),
        ]
    )

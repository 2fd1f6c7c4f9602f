"""The model card: what a user of a model has to know."""

from __future__ import annotations

from collections.abc import Mapping

CHAMPION = "champion"


def model_card(
    name: str,
    languages: tuple[str, str],
    params: Mapping[str, object],
    scores: Mapping[str, float],
    signatures: Mapping[str, str],
    data: Mapping[str, str],  # file name -> "12,345 lines, sha256 ..."
    origin: Mapping[str, str],
) -> str:
    """What a user of the model has to know, in Markdown."""

    def table(head: str, rows: Mapping[str, object]) -> list[str]:
        lines = [f"| {key} | {value} |" for key, value in rows.items()]
        return [f"| {head} | |", "| --- | --- |", *lines, ""]

    source, target = languages
    signed = {key: f"{value} {signatures.get(key, '')}".strip().replace("|", "\\|") for key, value in scores.items()}
    return "\n".join([
        f"# {name}", "",
        f"Translates {source} to {target}, a sentence a line, by an encoder-decoder Transformer.", "",
        "    mlflow models serve --model-uri models:/" + f"{name}@{CHAMPION} --env-manager local --port 5001",
        "    curl localhost:5001/invocations --json '{\"inputs\": [\"...\"]}'", "",
        "It knows what its training text shows and nothing else; other domains, and sentences much longer than",
        "those of training, come out worse than the scores say.", "",
        *table("score", signed), *table("data", data), *table("origin", origin), *table("param", params),
    ])  # fmt: skip

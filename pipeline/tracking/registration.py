"""The registration of a configuration's model, from its results: name, card, search options, gain over the champion."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from pipeline.stage import project_root
from pipeline.tracking.champion import Gain
from pipeline.tracking.model_card import model_card
from pipeline.tracking.recorder import Configuration
from pipeline.tracking.registry import Candidate, register
from pipeline.tracking.results import Results
from transformer.decoding.config import SearchConfig
from transformer.evaluation.comparison import TESTS, System, against_the_first
from transformer.files import sha256_text


def model_name(results: Results) -> str:
    """The name of the registered model, as in toy-de-en; for your own files with a hash of the valid set at its end."""
    params = results.params
    name = f"{params.corpus}-{params.source}-{params.target}"
    return f"{name}-{valid_sha256(results)[:8]}" if params.corpus == "files" else name


def valid_sha256(results: Results) -> str:
    """A hash of both sides of the validation set."""
    return sha256_text("".join(results.sha256(results.raw(side, "valid")) for side in ("src", "tgt")))


def gain(results: Results, champion: Sequence[str]) -> Gain:
    """How much better these results are on valid than a champion's translations of it."""
    lines, references = results.lines(results.hypotheses("valid")), results.lines(results.raw("tgt", "valid"))
    params = vars(results.params)  # the target language chooses how BLEU splits lines into tokens
    systems = [System("champion", params, {}, hypotheses=champion), System("challenger", params, {}, hypotheses=lines)]
    row = against_the_first(systems, references)[1]
    return Gain(row["delta"], row[TESTS["ar"]])


def register_model(results: Results, configuration: Configuration, origin: Mapping[str, str]) -> str:
    """Register the model of results whose run exists. Returns the message to print. Raises store errors."""
    params, scores, name = results.params, results.scores(), model_name(results)
    data = {str(one["name"]): f"{one['lines']:,} lines, sha256 {one['sha256']}" for one in configuration.datasets}
    card = model_card(
        name,
        (params.source, params.target),
        vars(params),
        scores,
        results.signatures(),
        data,
        {"train_key": configuration.train_key, "config_key": configuration.config_key, **origin},
    )
    search = asdict(params.take(SearchConfig))
    options = {name: search[name] for name in ("beam_size", "length_penalty", "extra_length")}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        for file, place in results.folder("data/model").items():
            shutil.copyfile(place, folder / file)  # MLflow follows no links out of the folder
        candidate = Candidate(
            name=name,
            folder=folder,
            options=options,
            config_key=configuration.config_key,
            card=card,
            valid_bleu=scores["valid_bleu"],
            valid_sha256=valid_sha256(results),
            engines_agree=results.engines_agree(),
            gain_over=partial(gain, results),
            tags=origin,
        )
        return register(project_root(), candidate)

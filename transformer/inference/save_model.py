"""A model with its merges and vocabulary to a model folder, which Translator.load reads."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from transformer.files import Mistake, check_replaceable, whole_folder, write_json, write_text
from transformer.model.transformer import Transformer
from transformer.model.weights import cpu_copy, save_weights
from transformer.model_folder import FILES, FORMAT
from transformer.text.bpe import Merges
from transformer.text.vocabulary import Vocabulary
from transformer.text.words import Side


def save_model(
    folder: Path | str, model: Transformer, merges: Merges, vocabulary: Vocabulary, source: Side, target: Side
) -> None:
    """Write a model folder, completely or not at all; one that is there is replaced.

    source, target: how lines become tokens. Raises Mistake if model and vocabulary have different sizes, or if the
    folder has other files than a model folder.
    """
    check_replaceable(Path(folder), FILES)
    if len(vocabulary) != model.config.vocabulary:
        raise Mistake(
            f"The vocabulary has {len(vocabulary):,} subwords, the model has {model.config.vocabulary:,}. Nothing was "
            "saved. Use the vocabulary that the model was made for."
        )
    description = {"format": FORMAT, "sizes": asdict(model.config)}
    description |= {"source": source.language, "source_splitter": source.splitter}
    description |= {"target": target.language, "target_splitter": target.splitter}
    description |= {"lowercase": target.lowercase, "lowercase_source": source.lowercase}
    description |= {"normalise": source.normal_form, "placeholders": source.placeholders}
    with whole_folder(Path(folder)) as temporary:
        save_weights(cpu_copy(model.state_dict()), temporary / "weights.safetensors")
        write_text(temporary / "bpe.codes", merges.codes)
        vocabulary.save(temporary / "vocab.txt")
        write_json(temporary / "model.json", description)

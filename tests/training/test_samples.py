"""Samples: at each validation, greedy translations of three validation sentences, which change no result."""

import csv
import io

import numpy as np
import pytest
from support.tiny import target_of, tiny_trainer
from support.trainings import outcome, train_tiny

from transformer.decoding.beam_search import translate_ids
from transformer.training import loop
from transformer.training.validation import SHORT, ValidText, sampled_rows


def rows_of(text: str) -> list[dict]:
    """The rows of a table of samples."""
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.full
@pytest.mark.parametrize("best_by", ["loss", "bleu"])
def test_samples_change_no_bit_of_a_training(tmp_path, monkeypatch, best_by):
    with_samples, digest = train_tiny(tmp_path, tmp_path / "with", best_by=best_by)
    monkeypatch.setattr(loop, "samples", lambda *arguments: ["", "", ""])
    without, again = train_tiny(tmp_path, tmp_path / "without", best_by=best_by)
    assert digest == again
    with_samples.samples = without.samples
    assert outcome(with_samples) == outcome(without)


def test_samples_are_greedy_translations_at_each_validation(tmp_path):
    tables: list[str] = []
    state, _ = train_tiny(tmp_path, tmp_path / "w", on_samples=tables.append)
    train_tiny(tmp_path, tmp_path / "w", on_samples=tables.append)  # resumes at its end
    assert tables[-1] == tables[-2]
    trainer = tiny_trainer(tmp_path)
    trainer.model.load_state_dict(loop.CheckpointStore(tmp_path / "w").load(state)[0])
    sources = [ids[:-1].tolist() for ids in trainer.valid_pairs.source]
    rows = rows_of(tables[-1])
    assert len(rows) == 9
    assert [int(row["step"]) for row in rows] == [4, 8, 12] * 3
    valid = ValidText.build_from_ids(trainer.valid_pairs)
    for row in rows[2::3]:
        number = int(row["sentence"]) - 1
        ((hypothesis,),) = translate_ids([trainer.model.eval()], [sources[number]], SHORT)
        assert row["translation"] == valid.to_text(hypothesis.ids)
        assert row["source"] == valid.to_text(sources[number])
        assert row["reference"] == valid.to_text(target_of(sources[number]))


def test_samples_are_evenly_spaced_among_the_shorter_half():
    assert sampled_rows(np.array([50, 10, 30, 20, 40, 60])) == [3, 2, 4]
    assert sampled_rows(np.array([9, 7, 8])) == [1, 2]
    assert sampled_rows(np.array([7, 7])) == [0, 1]
    assert sampled_rows(np.array([7])) == [0]

"""The engine of a model folder: CTranslate2 for what it computes as torch does, torch for all else."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.decoding.config import SamplingConfig, SearchConfig
from transformer.decoding.hypothesis import Hypothesis
from transformer.files import Mistake
from transformer.inference.engine import Check, Engine, Ids, Progress
from transformer.model_folder import EXPORT, WEIGHTS
from transformer.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformer.decoding.attention_maps import AttentionMaps
    from transformer.inference.ctranslate2_engine import CTranslate2Engine
    from transformer.inference.torch_engine import TorchEngine

ENGINES = ("auto", "torch", "ctranslate2")


class BothEngines:
    """CTranslate2 for searches; torch, loaded when it is first needed, for all else."""

    def __init__(self, fast: CTranslate2Engine, folder: Path):
        self.fast, self.folder = fast, folder

    @cached_property
    def torch(self) -> TorchEngine:
        """The model for torch."""
        return load_torch([self.folder])

    def search(
        self, sources: Ids, config: SearchConfig, progress: Progress, before_step: Check
    ) -> list[list[Hypothesis]]:
        """Sources to hypotheses. torch searches if a source is too long for CTranslate2."""
        fast = all(self.fast.takes(source, config.extra_length) for source in sources)
        return (self.fast if fast else self.torch).search(sources, config, progress, before_step)

    def sample(self, sources: Ids, config: SamplingConfig, progress: Progress) -> list[list[Hypothesis]]:
        """See TorchEngine.sample."""
        return self.torch.sample(sources, config, progress)

    def score(self, sources: Ids, targets: Ids, progress: Progress) -> list[list[float]]:
        """See TorchEngine.score."""
        return self.torch.score(sources, targets, progress)

    def attention(self, source: Sequence[int], target: Sequence[int]) -> AttentionMaps:
        """See TorchEngine.attention."""
        return self.torch.attention(source, target)


def load_engine(folders: Sequence[Path], name: str, vocabulary: Vocabulary, threads: int = 0) -> Engine:
    """The engine of a model folder, or of several as an ensemble.

    name: torch, ctranslate2, or auto, which is both where CTranslate2 is installed, the folder has its export, and
    there is no GPU; else the one that can. threads: see CTranslate2Engine. Raises Mistake for a folder that the
    engine cannot read, or whose two models differ.
    """
    if name not in ENGINES:
        raise Mistake(f"engine={name!r} must be one of {', '.join(ENGINES)}. Nothing was loaded.")
    folder, exported = folders[0], len(folders) == 1 and (folders[0] / EXPORT).is_file()
    if name == "torch" or (name == "auto" and not exported):
        return load_torch(folders)
    if not exported:
        raise Mistake(f"engine=ctranslate2 needs one model folder, with {EXPORT} in it. Use engine=torch.")
    both = name == "auto" and has_torch(folder)
    try:  # imported here, so that each engine works without the library of the other
        import ctranslate2  # noqa: F401
    except ImportError:
        if both:
            return load_torch(folders)
        raise Mistake(f"{folder} needs ctranslate2, which is not installed: pip install ctranslate2.") from None
    from transformer.inference.ctranslate2_engine import CTranslate2Engine, has_gpu

    if both and has_gpu():
        return load_torch(folders)
    fast = CTranslate2Engine(folder, vocabulary, threads)
    return BothEngines(fast, folder) if both else fast


def has_torch(folder: Path) -> bool:
    """Whether torch is installed, and a folder has its weights."""
    return (folder / WEIGHTS).is_file() and find_spec("torch") is not None


def check_ensemble(first: Path, first_content: dict, other: Path, content: dict) -> None:
    """Raise Mistake if two model folders, with the contents of their model.json, cannot be one ensemble."""
    why = next(
        (
            f"{name} is {content.get(name)}, and {first_content.get(name)} in {first}"
            for name in ("source", "target", "lowercase", "lowercase_source", "normalise", "placeholders")
            if content.get(name) != first_content.get(name)
        ),
        "",
    )
    if any((other / name).read_bytes() != (first / name).read_bytes() for name in ("vocab.txt", "bpe.codes")):
        why = f"it has another vocabulary or other merges than {first}"
    if why:
        raise Mistake(
            f"{other} cannot be in an ensemble with {first}: {why}. Use models of one corpus, with the "
            "same text settings in params.yaml."
        )


def load_torch(folders: Sequence[Path]) -> TorchEngine:
    """The torch engine. Raises Mistake for a folder that has the export for CTranslate2 alone."""
    for folder in folders:
        if (folder / EXPORT).is_file() and not (folder / WEIGHTS).is_file():
            raise Mistake(
                f"{folder} has a model for CTranslate2 alone, and this needs torch. Use the model folder that it was "
                f"exported from, which has {WEIGHTS}."
            )
    if find_spec("torch") is None:
        raise Mistake(f"{folders[0]} needs torch here, which is not installed: pip install torch.")
    from transformer.inference.torch_engine import TorchEngine

    return TorchEngine.load(folders)

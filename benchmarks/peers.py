# pyright: reportMissingImports=false
"""JoeyNMT and OpenNMT-py: their own models, losses and optimisers, called as their training loops call them.

Their data loaders are left out, which favours them: reading text and making batches is not timed. `make bench-setup`
installs both without the versions that they pin.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import Tensor

from benchmarks.feeding import Epochs, joeynmt_epoch, opennmt_epoch
from benchmarks.flops import DROPOUT, SMOOTHING, Size
from benchmarks.programs import BETAS, CLIP_NORM, SEED, WARMUP, Program, Task
from transformer.text.vocabulary import BOS, EOS, PAD, UNK
from transformer.training.train_step import seed_everything


def pretend(*modules: str) -> None:
    """Let `import` succeed for modules that are not installed and that no training step calls."""
    for name in modules:
        if name not in sys.modules and find_spec(name) is None:
            sys.modules[name] = MagicMock()


def joeynmt_model(size: Size, vocabulary: int) -> Any:
    """JoeyNMT's Transformer with one matrix for both embeddings and the output."""
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    names = SimpleNamespace(
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        sep_token=None,
        unk_id=0,
        pad_id=1,
        bos_id=BOS,
        eos_id=EOS,
        lang_tags=[],
    )
    words = Vocabulary([str(i) for i in range(4, vocabulary)], names)
    half = {
        "type": "transformer",
        "num_layers": size.layers,
        "num_heads": size.heads,
        "hidden_size": size.d_model,
        "ff_size": size.d_ff,
        "dropout": DROPOUT,
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": size.d_model, "scale": True, "dropout": DROPOUT},
    }
    return build_model({"encoder": half, "decoder": half, "tied_embeddings": True, "tied_softmax": True}, words, words)


class JoeyNMT(Program):
    """JoeyNMT 2.3: the update of TrainManager."""

    def __init__(self, task: Task):
        super().__init__(task)
        from joeynmt.builders import build_gradient_clipper, build_optimizer

        seed_everything(SEED)
        self.model: Any = joeynmt_model(task.size, task.vocabulary).to(task.device).train()
        self.model.loss_function = ("crossentropy", SMOOTHING)
        choices = {"optimizer": "adam", "learning_rate": 3e-4, "adam_betas": BETAS}
        self.optimiser = build_optimizer(choices, self.model.parameters())
        self.clip: Any = build_gradient_clipper({"clip_grad_val": None, "clip_grad_norm": CLIP_NORM})
        self.scaler = torch.amp.GradScaler(task.device.type, enabled=task.precision == "float16")
        self.batches = Epochs(joeynmt_epoch(task.pairs, SEED, task.batch_tokens))
        self.ids = torch.arange(task.vocabulary)
        self.ids[[PAD, UNK]] = self.ids[[UNK, PAD]]  # JoeyNMT has these two ids swapped

    def update(self, step: int) -> None:
        batch = self.batch(self.rows(step))
        with self.task.autocast:
            loss, _, _, correct = self.model(return_type="loss", **vars(batch))
        loss = batch.normalize(loss, normalization="tokens")
        self.scaler.scale(loss).backward()
        self.logged = loss.item(), correct.item()  # it reads both for its log
        self.clip(parameters=self.model.parameters())
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.model.zero_grad()

    def batch(self, rows: np.ndarray) -> Any:
        """The batch that its data loader makes of the pairs `rows`, sorted as in its training."""
        from joeynmt.batch import Batch

        source, _, output = (self.ids[part] for part in self.task.padded(rows))
        target = torch.cat([torch.full((len(rows), 1), BOS), output], dim=1)
        lengths = torch.from_numpy(self.task.pairs.source_lengths[rows])
        pad = self.model.pad_index
        batch = Batch(source, lengths, None, target, None, torch.arange(len(rows)), self.task.device, pad, EOS)
        batch.sort_by_src_length()
        return batch


class OpenNMT(Program):
    """OpenNMT-py 3.5: the update of Trainer."""

    def __init__(self, task: Task):
        super().__init__(task)
        pretend("fasttext", "pyonmttok")  # used for text only, and not available for every Python
        from onmt.model_builder import build_model
        from onmt.utils.loss import LossCompute
        from onmt.utils.optimizers import Optimizer

        seed_everything(SEED)
        ids = {"<blank>": PAD, "<unk>": UNK, "<s>": BOS, "</s>": EOS}
        ids |= {str(i): i for i in range(len(ids), task.vocabulary)}
        options = self._options()
        self.model = build_model(options, options, {"src": ids, "tgt": ids}, None, 0).train()
        self.loss = LossCompute.from_opts(options, self.model, ids)
        self.optimiser = Optimizer.from_opt(self.model, options)
        sizes = task.batch_tokens, options.batch_size_multiple, options.bucket_size
        self.batches = Epochs(opennmt_epoch(task.pairs, SEED, *sizes))

    def _options(self) -> Any:
        """OpenNMT-py's default options, except for the sizes and what all programs share."""
        import onmt.opts
        from onmt.utils.parse import ArgumentParser

        size = self.task.size
        values = {
            "layers": size.layers,
            "hidden_size": size.d_model,
            "word_vec_size": size.d_model,
            "heads": size.heads,
            "transformer_ff": size.d_ff,
            "dropout": DROPOUT,
            "attention_dropout": DROPOUT,
            "label_smoothing": SMOOTHING,
            "encoder_type": "transformer",
            "decoder_type": "transformer",
            "optim": "adam",
            "adam_beta2": BETAS[1],
            "learning_rate": 1.0,
            "decay_method": "noam",
            "warmup_steps": WARMUP,
            "max_grad_norm": CLIP_NORM,
            "param_init": 0.0,
            "data": "none",
            "src_vocab": "none",
            "model_dtype": "fp16" if self.task.precision == "float16" else "fp32",
        }
        words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
        words += [
            "--param_init_glorot",
            "--position_encoding",
            "--share_embeddings",
            "--share_decoder_embeddings",
            "--share_vocab",
            *(["--gpu_ranks", "0"] if self.task.device.type == "cuda" else []),
        ]
        parser = ArgumentParser()
        onmt.opts.train_opts(parser)
        options = parser.parse_known_args(words)[0]
        ArgumentParser.update_model_opts(options)
        ArgumentParser.validate_model_opts(options)
        return options

    def update(self, step: int) -> None:
        batch, tokens = self.batch(self.rows(step))
        self.optimiser.zero_grad(set_to_none=True)
        with self.task.autocast:
            states, attention = self.model(batch["src"], batch["tgt"], batch["srclen"], bptt=False, with_align=False)
            loss, _ = self.loss(batch, states, attention)
        self.optimiser.backward(loss / tokens)
        self.optimiser.step()

    def lengths(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        source, target = super().lengths(rows)
        return source - 1, target  # a source has no </s> there

    def batch(self, rows: np.ndarray) -> tuple[dict[str, Tensor], int]:
        """The batch that its data loader makes of the pairs `rows`, and the number of target tokens."""
        source, _, output = self.task.batch(rows)
        source = source.masked_fill(source == EOS, PAD)[:, :-1]
        target = torch.cat([torch.full_like(output[:, :1], BOS), output], dim=1)
        sources, targets = self.lengths(rows)
        lengths = torch.from_numpy(sources).to(self.task.device)
        return {"src": source[..., None], "tgt": target[..., None], "srclen": lengths}, int(targets.sum())

# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The Transformer, part by part
#
# This text follows "Attention Is All You Need" (Vaswani et al. 2017; "the paper" below). For each part it shows the
# function that this project runs, calls it on something small, and draws what comes out. Python reads the source of
# each function when this page is made, so what you see is what trains. Every number in the prose is computed by the
# cell that prints it; figures from the paper are named as such. Where the text says why, a small experiment shows it.
#
# Sections and equations have the paper's numbers. The paper numbers three equations: attention (1), the feed-forward
# layer (2) and the learning rate (3). For all others the text gives the section.
#
# Shapes have one letter for each dimension, with the paper's name where it has one: B sentences, S source subwords, T
# target subwords, D width of the model, $d_\text{model}$; H heads, $h$; K = D / H width of a head, $d_k$; F width
# inside the feed-forward layer, $d_\text{ff}$; V subwords of the vocabulary.

# %% tags=["folded"]
import math
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from unittest import mock

ROOT = next(folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "dvc.yaml").is_file())
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import numpy as np
import pandas as pd
import torch
from torch import nn
from walkthrough_charts import bars, figure, heads, heatmap, lines, say, side_by_side, source, table, tree

from pipeline.params import Params
from transformer import Translator
from transformer.corpora.copy_task import copy_corpus
from transformer.corpora.toy.grammar import toy_corpus
from transformer.decoding import beam_search as search
from transformer.decoding.attention_maps import attention_maps, record_weights
from transformer.decoding.beam_search import translate_ids
from transformer.decoding.config import SearchConfig
from transformer.decoding.hypothesis import length_divisor
from transformer.files import read_lines
from transformer.inference.torch_engine import TorchEngine
from transformer.model import cpu
from transformer.model.attention import Attention, causal_bias, padding_bias
from transformer.model.averaging import mean_weights
from transformer.model.config import TransformerConfig
from transformer.model.cpu import split_heads
from transformer.model.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Residual,
    Transformer,
    sinusoids,
)
from transformer.model.weights import cpu_copy, save_weights
from transformer.text.bpe import Merges, learn_merges
from transformer.text.marks import join
from transformer.text.pairs import Pairs
from transformer.text.vocabulary import BOS, EOS, Vocabulary
from transformer.text.words import Side
from transformer.training.batches import global_batches
from transformer.training.config import TrainConfig, learning_rate
from transformer.training.distributed import World
from transformer.training.loss import smoothed_cross_entropy
from transformer.training.optimiser import Muon, orthogonal
from transformer.training.train_step import Trainer, predict, seed_everything
from transformer.training.validation import valid_loss

torch.set_num_threads(1)  # sums then have the same order on a machine with any number of cores
# Published figures of the paper: table 3 (base, big), section 5.1 ("about 37000 tokens"), 3.2.2 (width of a head),
# 6.2 (BLEU that a single head loses).
PAPER = {
    "base": {"d_model": 512, "d_ff": 2048, "heads": 8, "weights": 65_000_000},
    "big": {"d_model": 1024, "d_ff": 4096, "heads": 16, "weights": 213_000_000},
}
PAPER_VOCABULARY, PAPER_HEAD, PAPER_ONE_HEAD = 37_000, 64, 0.9


def tiny(number: float) -> str:
    """A small number in one digit, as 2e-15."""
    return f"{number:.0e}" if number else "0"


temporary = tempfile.TemporaryDirectory(prefix="walkthrough-")  # removed when Python ends
folder = Path(temporary.name)

# %% [markdown]
# ## 1. From text to numbers
#
# A model reads numbers, one for each piece of text. Whole words would need a huge vocabulary, and a new word would
# have no number. Single letters would make long sequences. The paper uses pieces in between, found by byte-pair
# encoding (section 5.1): start from letters, then join the pair of neighbours that occurs most often in the training
# text, and repeat. Frequent words end as one piece; rare words stay in several.
#
# Our text is the built-in German-English corpus. `Side.tokens` first splits a line into words; `▁` marks a word that
# follows a space, so that the line can be put together again.

# %%
source(learn_merges, Merges.subwords)

# %%
corpus = toy_corpus()
sides = Side("de", lowercase=False), Side("en", lowercase=False)
texts = {
    split: [(pair.source, pair.target) for pair in corpus[split][:count]]
    for split, count in (("train", 4000), ("valid", 200), ("test", 50))
}
tokens = {
    split: [[side.tokens(line) for side, line in zip(sides, pair, strict=True)] for pair in pairs]
    for split, pairs in texts.items()
}
word_counts = Counter(word for pair in tokens["train"] for side in pair for word in side)
codes = learn_merges(word_counts, 300)
header, *learned = codes.splitlines()
table(
    pd.DataFrame({"merge": range(1, 9), "joins": [f"{line.split()[0]} + {line.split()[1]}" for line in learned[:8]]}),
    "The first merges that the training text gives. `</w>` marks the end of a word.",
)

# %% [markdown]
# Now watch one word. Each row uses more of the merges than the row above; only rows are shown in which the word
# changes.


# %%
def with_merges(count: int) -> Merges:
    """The first `count` merges alone."""
    return Merges("\n".join([header, *learned[:count], ""]))


long_words = sorted((word for word in word_counts if word.startswith("▁")), key=lambda word: (-len(word), word))
shown_word = next(word for word in long_words if 2 <= len(with_merges(len(learned)).subwords([word])) <= 3)
steps_of_word, before = [], None
for count in range(1, len(learned) + 1):
    pieces = with_merges(count).subwords([shown_word])
    if pieces != before:
        steps_of_word.append({"merges": count, "pieces": len(pieces), "the word": " ".join(pieces)})
    before = pieces
table(pd.DataFrame(steps_of_word), f"`{shown_word}` while merges are added. A space separates the pieces.")

# %%
merges = with_merges(len(learned))
lengths = [
    {
        "merges": count,
        "subwords per sentence": sum(
            len(with_merges(count).subwords(side)) for pair in tokens["train"][:100] for side in pair
        )
        / 200,
    }
    for count in (1, 10, 25, 50, 100, 200, 300)
]
figure(
    lines(pd.DataFrame(lengths), "merges", "subwords per sentence", zero=True),
    "More merges make sentences shorter: mean number of subwords, over the first training sentences.",
)

# %% [markdown]
# The vocabulary gives each piece its number. Four numbers come first and stand for no text: padding, unknown, the
# start `<s>` and the end `</s>` of a sentence. Source and target share one vocabulary, as in the paper. Nothing is
# lost on the way: the pieces of a line, joined, give the line again.

# %%
subword_counts = Counter()
for word, count in word_counts.items():
    subword_counts.update(dict.fromkeys(merges.subwords([word]), count))
vocabulary = Vocabulary.build(subword_counts, min_count=1)


def save_pairs(split_tokens: dict, merges: Merges, vocabulary: Vocabulary, place: Path) -> dict[str, Pairs]:
    """The tokens of some splits as ids on disk, which training reads."""
    place.mkdir()
    for split, pairs in split_tokens.items():
        rows = ([vocabulary.ids(merges.subwords(side)) for side in pair] for pair in pairs)
        Pairs.save_rows(place, split, ((*ids, line) for line, ids in enumerate(rows, start=1)), len(vocabulary))
    return {split: Pairs.load(place, split) for split in split_tokens}


data = save_pairs(tokens, merges, vocabulary, folder / "toy")
kept = sum(
    join(merges.subwords(side)) == line
    for pair, text in zip(tokens["train"], texts["train"], strict=True)
    for side, line in zip(pair, text, strict=True)
)
example = merges.subwords(tokens["test"][0][0])
say(f"""
The sentence `{texts["test"][0][0]}` becomes the subwords `{" ".join(example)}` and the numbers
`{" ".join(map(str, vocabulary.ids(example)))}`. The vocabulary has {len(vocabulary)} entries.
{kept:,} of {2 * len(texts["train"]):,} training lines come back unchanged from their pieces.
""")

# %% [markdown]
# ## 2. Small trainings as evidence
#
# Later parts ask why something is as it is, and answer with an experiment: train two small models that differ in this
# one thing, from the same random seed on the same batches, and compare their loss on sentences that neither has seen.
# The loss is the mean of $-\log p$ of the right next subword, in nats; lower is better.
#
# `Trainer` is the class that the pipeline trains with. Its settings come from a recipe, here with a smaller model. How
# it works is the subject of parts 11 to 14; up to there only the loss matters.

# %%
SMALL = {
    "d_model": 64,
    "d_ff": 128,
    "heads": 4,
    "layers": 2,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "batch_tokens": 1024,
    "device_tokens": 1024,
    "warmup": 50,
    "lr_factor": 0.4,
}


def new_trainer(
    pairs: dict[str, Pairs], size: int, recipe: str = "toy", kind: type[Transformer] = Transformer, **changes
) -> Trainer:
    """A trainer of a new model on some pairs. size: of the vocabulary. changes: to the knobs of the recipe."""
    knobs = Params.load(ROOT / f"recipes/{recipe}.yaml").changed(**changes)
    seed_everything(knobs.seed)
    model = kind(knobs.take(TransformerConfig, vocabulary=size, max_positions=128))
    return Trainer(model, pairs["train"], pairs["valid"], World(), knobs.take(TrainConfig))


def curve(name: str, trainer: Trainer, updates: int = 150, every: int = 25) -> pd.DataFrame:
    """Train, and return the loss on the validation pairs after every few updates."""
    rows = []
    for step in range(1, updates + 1):
        trainer.update(step)
        if step % every == 0:
            rows.append({"update": step, "loss on unseen sentences": valid_loss(trainer), "model": name})
    return pd.DataFrame(rows)


def small(name: str, updates: int = 150, **changes) -> tuple[Trainer, pd.DataFrame]:
    """A small model of the toy corpus, trained, and its curve. changes: to SMALL."""
    trainer = new_trainer(data, len(vocabulary), **{**SMALL, **changes})
    return trainer, curve(name, trainer, updates)


def compare(*curves: pd.DataFrame, caption: str):
    """Draw curves of the loss."""
    return figure(lines(pd.concat(curves), "update", "loss on unseen sentences", "model"), caption)


def size_of(model: nn.Module) -> int:
    """The number of weights of a model."""
    return sum(weight.numel() for weight in model.parameters())


def last(losses: pd.DataFrame) -> float:
    """The last loss of a curve."""
    return float(losses["loss on unseen sentences"].iloc[-1])


# %% tags=["slow"]
baseline, usual = small("as it is here")
compare(usual, caption="The model that the next parts compare with. Its loss falls while it learns to translate.")

# %% [markdown]
# ## 3. Embeddings
#
# An embedding is a table of V vectors of width D, one for each subword. Section 3.4 says two things about it: the same
# matrix serves the source, the target and the projection before the softmax, and the embeddings are multiplied by
# $\sqrt{d_\text{model}}$.

# %%
source(Transformer.embed, Transformer.logits)

# %% [markdown]
# ### Why are embeddings multiplied by $\sqrt{d_\text{model}}$?
#
# Because one matrix has two jobs. As the projection to the vocabulary its entries must be small, about $1 /
# \sqrt{d_\text{model}}$, or the first guesses of the model are wildly sure of themselves. As the input of the first
# layer the same small entries would drown in the position encodings, whose entries are sines and cosines. The factor
# gives each job its size. Two measurements show both halves:

# %%
knobs = Params.load(ROOT / "recipes/toy.yaml").changed(**SMALL)
seed_everything(1)
fresh = Transformer(knobs.take(TransformerConfig, vocabulary=len(vocabulary), max_positions=128)).eval()


def root_mean_square(x: torch.Tensor) -> float:
    """The size of a typical entry."""
    return x.double().pow(2).mean().sqrt().item()


def first_loss(model: Transformer) -> float:
    """The loss of a model on a few pairs, without any training."""
    batch = data["valid"].batch(np.arange(40))
    with torch.no_grad():
        states = model(torch.from_numpy(batch.source), torch.from_numpy(batch.target_input)).flatten(0, 1)
        logits = model.logits(states[torch.from_numpy(batch.places)])
        return nn.functional.cross_entropy(logits, torch.from_numpy(batch.targets)).item()


entry, encoding = root_mean_square(fresh.source_embedding.weight), root_mean_square(sinusoids(25, fresh.d_model))
small_matrix_loss = first_loss(fresh)
with torch.no_grad():
    fresh.source_embedding.weight *= math.sqrt(fresh.d_model)  # entries of size 1
large_matrix_loss = first_loss(fresh)
with torch.no_grad():
    fresh.source_embedding.weight /= math.sqrt(fresh.d_model)
say(f"""
- A typical entry of the matrix is {entry:.3f}, of a position encoding {encoding:.3f}: {encoding / entry:.1f} times as
  large. Multiplied by $\\sqrt{{d_\\text{{model}}}}$, the entry is {entry * math.sqrt(fresh.d_model):.2f}.
- With these small entries the untrained model has a loss of {small_matrix_loss:.2f}. A blind guess among all subwords
  has {math.log(len(vocabulary)):.2f}. With entries of size 1 in the matrix, the loss starts at {large_matrix_loss:.1f}.
""")

# %% [markdown]
# And the experiment: the same model without the factor. The class below changes only that.


# %%
class Unscaled(Transformer):
    """A Transformer whose embeddings are not multiplied by sqrt(d_model)."""

    def embed(self, embedding, ids, encodings=None):
        factor = math.sqrt(self.d_model)
        encodings = self.position_encodings(0, ids.shape[1]) if encodings is None else encodings
        return super().embed(embedding, ids, factor * encodings) / factor


# %% tags=["slow"]
_, unscaled = small("without the factor", kind=Unscaled)
compare(usual, unscaled, caption="With and without the factor on the embeddings.")

# %% tags=["slow"]
say(f"""
After {usual["update"].iloc[-1]} updates the loss is {last(usual):.2f} with the factor and {last(unscaled):.2f} without.
At first the model without it sees positions, and hardly any words.
""")

# %% [markdown]
# ### What does sharing the embeddings do?
#
# It saves weights: one matrix in the place of three. And a subword that is frequent on one side is then learned for
# all three jobs at once. Whether this helps depends on how much text there is for each job, so the next cell measures
# it for our small model.

# %% tags=["slow"]
apart, untied = small("three matrices", tie_embeddings=False)
compare(usual, untied, caption="One shared matrix, and three separate ones.")

# %% tags=["slow"]
shared_size, apart_size = size_of(baseline.model), size_of(apart.model)
ahead = "three matrices are ahead" if last(untied) < last(usual) else "the shared matrix is ahead"
say(f"""
The model has {shared_size:,} weights with one matrix and {apart_size:,} with three, {apart_size / shared_size - 1:.0%}
more. After {usual["update"].iloc[-1]} updates the losses are {last(usual):.2f} (shared) and {last(untied):.2f} (three):
here {ahead}. Sharing saves weights; a model also learns without it. It matters most for large vocabularies, where
the three matrices would be most of the model (part 10).
""")

# %% [markdown]
# ## 4. Positions
#
# Attention treats its input as a set: it has no first and no second. Section 3.5 therefore adds to each embedding a
# vector that depends on the position alone:
#
# $$ PE_{(pos, 2i)} = \sin(pos / 10000^{2i / d_\text{model}}) \qquad \text{(section 3.5, not numbered)} $$
#
# $$ PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i / d_\text{model}}) $$


# %%
source(sinusoids)

# %%
encodings = sinusoids(60, 32)
figure(
    heatmap(encodings.T, cell=8, row_title="dimension", column_title="position"),
    "Position encodings: blue is positive, orange negative. Each pair of rows is a sine and a cosine of one wave; "
    "the waves become longer from top to bottom.",
)

# %% [markdown]
# First the claim that without them order is lost. We shuffle the subwords of a source sentence, and look at the state
# that the encoder computes for each of them.


# %%
class NoPositions(Transformer):
    """A Transformer without position encodings."""

    def position_encodings(self, start, length):
        return torch.zeros(length, self.d_model, dtype=self.source_embedding.weight.dtype)


def memory_of(model: Transformer, ids: torch.Tensor) -> torch.Tensor:
    """The output of the encoder for one sentence of ids: (S, D)."""
    with torch.no_grad():
        return model.encode(ids[None], model.source_bias(ids[None]))[0]


words = torch.tensor(vocabulary.ids(example))
shuffled = torch.randperm(len(words), generator=torch.Generator().manual_seed(1))
moved = {}
for name, kind in (("with", Transformer), ("without", NoPositions)):
    seed_everything(1)
    model = kind(knobs.take(TransformerConfig, vocabulary=len(vocabulary), max_positions=128)).double().eval()
    moved[name] = (memory_of(model, words)[shuffled] - memory_of(model, words[shuffled])).abs().max().item()
say(f"""
Without position encodings the state of each subword is the same in any order: the largest difference is
{tiny(moved["without"])}, which is rounding. With them it is {moved["with"]:.2f}.
""")

# %% [markdown]
# ### Why sines and cosines?
#
# The paper's reason is that a shift by k positions is the same linear map everywhere: each pair (sine, cosine) turns
# by a fixed angle. If that is so, the product of two encodings depends on their distance alone, and one matrix M with
# $PE_{pos+k} = M \, PE_{pos}$ serves all positions. Both can be checked:

# %%
longer = sinusoids(200, 64)
waves = longer.unflatten(1, (-1, 2)).transpose(0, 1)  # (waves, positions, 2)
fitted, k = 100, 7
turns = torch.linalg.lstsq(waves[:, :fitted], waves[:, k : fitted + k]).solution  # a matrix (2, 2) for each wave
error = (waves[:, fitted:-k] @ turns - waves[:, fitted + k :]).abs().max().item()
products = pd.DataFrame(
    [
        {
            "distance": distance,
            "product": (longer[start] @ longer[start + distance]).item(),
            "from position": f"from position {start}",
        }
        for start in (0, 40, 90)
        for distance in range(60)
    ]
)
spread = products.groupby("distance")["product"].agg(lambda values: values.max() - values.min()).max()
figure(
    lines(products, "distance", "product", "from position"),
    "Product of the encodings of two positions, by their distance. The curves of all starts lie on each other.",
)

# %%
say(f"""
The products from different starts differ by at most {tiny(spread)}. One matrix for each wave, fitted on the first
{fitted} positions, shifts the encodings of all later positions up to {len(longer)} by {k}, with an error of at most
{tiny(error)}.
""")

# %% [markdown]
# ### Interleaved, or side by side?
#
# The formula puts sine and cosine of one wave next to each other. Other programs put all sines first and then all
# cosines. Readers ask which one is right. Both are: the order of the D dimensions is a matter of naming. To see it, we
# rename the dimensions of a whole model so that sines come first. Every weight moves with its dimension, and the
# outputs must stay.


# %%
class SideBySide(Transformer):
    """A Transformer whose position encodings have all sines first, then all cosines."""

    def position_encodings(self, start, length):
        return super().position_encodings(start, length)[:, order]


order = torch.cat([torch.arange(0, knobs.d_model, 2), torch.arange(1, knobs.d_model, 2)])
config = knobs.take(TransformerConfig, vocabulary=len(vocabulary), max_positions=128)
seed_everything(1)
interleaved = Transformer(config).double().eval()
renamed = SideBySide(config).double().eval()
moved_weights = {}
for name, weight in interleaved.state_dict().items():
    writes = name.endswith(("output.weight", "outer.weight"))  # rows are dimensions of the model: (D, ...)
    inside = name.endswith(("project.bias", "inner.bias"))  # dimensions of heads and of the feed-forward layer
    moved_weights[name] = weight if inside else weight[order] if writes or weight.ndim == 1 else weight[:, order]
renamed.load_state_dict(moved_weights)
target = torch.tensor([[BOS, *vocabulary.ids(merges.subwords(tokens["test"][0][1]))]])
with torch.no_grad():
    difference = interleaved.logits(interleaved(words[None], target)) - renamed.logits(renamed(words[None], target))
say(f"The logits of the two models differ by at most {tiny(difference.abs().max().item())}: rounding in float64.")

# %% [markdown]
# ## 5. Attention is a soft lookup
#
# A dictionary in Python has keys and values; a query that equals a key returns its value. Attention does the same with
# vectors, softly. The query is compared with every key by a product; a softmax makes weights of the products, which
# sum to 1; the result is the mean of the values with these weights:
#
# $$ \text{Attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V \qquad \text{(equation 1)} $$

# %%
source(Attention.weights, Attention.attend)

# %% [markdown]
# A dictionary of four entries, whose keys are at right angles to each other. We ask for the second one, first with a
# query of length 0, then with longer and longer ones.

# %%
lookup = Attention(d_model=4, heads=1, dropout=0.0).eval()
keys = torch.eye(4)[None, None]  # (B, H, S, K)
found = []
for length in np.linspace(0, 12, 49):
    query = torch.tensor([[[[0.0, float(length), 0.0, 0.0]]]])  # (B, H, T, K)
    weights = lookup.weights(query, keys, None)[0, 0, 0]
    found += [
        {"length of the query": length, "weight": weight, "entry": f"entry {number}"}
        for number, weight in enumerate(weights.tolist(), start=1)
    ]
soft = pd.DataFrame(found)
figure(
    lines(soft, "length of the query", "weight", "entry", zero=True),
    "Weights of the four entries. A query of length 0 gets the mean of all values; a long one gets its entry.",
)

# %%
ends = soft[soft["entry"] == "entry 2"]["weight"]
say(f"""
The weight of the entry that is asked for rises from {ends.iloc[0]:.2f} to {ends.iloc[-1]:.3f}. The weight changes
smoothly, so a gradient can pull queries towards the keys that would have helped. A dictionary does not change
smoothly. This is the only difference, and the reason why attention can be learned.
""")

# %% [markdown]
# In the encoder and in the masked part of the decoder, queries, keys and values are all made from the same states
# ("self-attention"). In the attention between them, the queries are made from the states of the decoder, keys and
# values from the output of the encoder. Each role has a learned projection of its own, so that a word can ask for one
# thing and be found by another.

# %% [markdown]
# ## 6. Why are scores divided by $\sqrt{d_k}$?
#
# Section 3.2.1 suspects that large products push the softmax to where its gradient is tiny. If the entries of query
# and key are independent with mean 0 and variance 1, their product is a sum of $d_k$ terms and has variance $d_k$.
# Measured:

# %%
seed_everything(6)
scales, sure = [], []
for size in (4, 8, 16, 32, 64, 128, 256, 512, 1024):
    queries, keys = torch.randn(1, 1, 400, size), torch.randn(1, 1, 400, size)
    scores = queries @ keys.mT
    for name, factor in (("product", 1.0), ("divided by the root of d_k", size**-0.5)):
        scales.append({"d_k": size, "variance": (scores * factor).var().item(), "score": name})
    for name, factor in (("not divided", size**0.5), ("divided by the root of d_k", 1.0)):
        weights = lookup.weights(queries * factor, keys[:, :, :16], None)  # it divides, so we multiply before
        sure += [
            {
                "d_k": size,
                "score": name,
                "largest weight": weights.amax(-1).mean().item(),
                "slope": (weights * (1 - weights)).sum(-1).mean().item(),
            }
        ]
scales, sure = pd.DataFrame(scales), pd.DataFrame(sure)
figure(
    lines(scales, "d_k", "variance", "score", log_x=True, log_y=True),
    "Variance of the scores of random queries and keys, by the width of a head. Both axes are logarithmic.",
)

# %%
figure(
    side_by_side(
        [
            lines(sure, "d_k", column, "score", log_x=True, zero=True).properties(width=200, height=200)
            for column in ("largest weight", "slope")
        ],
        columns=2,
    ),
    "Left: mean of the largest of 16 weights. Right: derivative of the weights by their own scores, summed over the "
    "keys; where it is near 0, no gradient passes.",
)

# %%
widest = sure[sure["d_k"] == sure["d_k"].max()].set_index("score")
paper_width = scales[(scales["d_k"] == PAPER_HEAD) & (scales["score"] == "product")]["variance"].item()
say(f"""
At the paper's width of a head, $d_k = {PAPER_HEAD}$, the variance of a product is {paper_width:.0f}. At a width of
{sure["d_k"].max()}, a softmax without the division gives the largest key a weight of
{widest["largest weight"]["not divided"]:.2f}, which is almost a hard choice, and its slope is
{widest["slope"]["not divided"]:.3f}. With the division the slope is
{widest["slope"]["divided by the root of d_k"]:.2f} at this width, as at any other.
""")

# %% [markdown]
# The experiment: one head as wide as the model, with and without the division.


# %%
class Undivided(Attention):
    """Attention whose scores are not divided by the root of K."""

    def weights(self, queries, keys, bias):
        return super().weights(queries * queries.shape[-1] ** 0.5, keys, bias)


class UndividedTransformer(Transformer):
    """A Transformer with that attention everywhere."""

    def __init__(self, config):
        super().__init__(config)
        for module in self.modules():
            if isinstance(module, Attention):
                module.__class__ = Undivided


# %% tags=["slow"]
_, one_head = small("one head", heads=1)
_, undivided = small("one head, not divided", heads=1, kind=UndividedTransformer)
compare(one_head, undivided, caption="One head of the full width, with and without the division.")

# %% tags=["slow"]
say(f"""
The loss ends at {last(one_head):.2f} with the division and at {last(undivided):.2f} without. A head is only
{SMALL["d_model"]} wide here; the measurement above says that the harm grows with the width.
""")

# %% [markdown]
# ## 7. Masks
#
# Attention must not reach two things. One is padding, which fills up the short sentences of a batch. The other is the
# future: in training the decoder gets the whole target at once, and if position t attended to later positions, it would
# copy the answer (section 3.2.3). Both are a bias that is added to the scores: 0 where attention is allowed, $-\infty$
# where not. The softmax of $-\infty$ is exactly 0.

# %%
source(causal_bias, padding_bias)

# %%
shown_target = ["<s>", *merges.subwords(tokens["test"][0][1])][:10]
allowed = (causal_bias(len(shown_target), torch.float32, torch.device("cpu")) == 0).float()
figure(
    heatmap(allowed, rows=shown_target, columns=shown_target, cell=24),
    "The causal mask. Each row is a position of the decoder; it may attend to the columns that are blue.",
)

# %% [markdown]
# Does it hold? We change one subword in the middle of a target and look at which states of the decoder move.

# %%
start = target[:, :14]
with torch.no_grad():
    changed_at, changed = start.shape[1] // 2, start.clone()
    changed[0, changed_at] += 1
    before, after = (interleaved(words[None], ids)[0] for ids in (start, changed))
    movement = (before - after).abs().amax(-1)
    padded = nn.functional.pad(words[None], (0, 5))  # five times <pad>, which is 0
    with_padding = (interleaved(words[None], start) - interleaved(padded, start)).abs().max().item()
positions = pd.DataFrame(
    {
        "position": [f"{i}: {vocabulary.subwords[n]}" for i, n in enumerate(start[0].tolist())],
        "movement of the state": movement.tolist(),
    }
)
figure(
    bars(positions, "movement of the state", "position", text=".2f"),
    f"How far each state of the decoder moves when the subword at position {changed_at} is another one.",
)

# %%
say(f"""
The positions before {changed_at} move by exactly {movement[:changed_at].max().item():g}; the others move by up to
{movement[changed_at:].max().item():.2f}. Padding at the end of the source moves states by
{tiny(with_padding)} at most.
""")

# %% [markdown]
# ## 8. Many heads
#
# One softmax gives one mean. To look at several places at once, section 3.2.2 uses H attentions side by side, each
# with its own projections to a smaller width K = D / H, joins their results and projects once more:
#
# $$ \text{MultiHead}(Q, K, V) = \text{Concat}(\text{head}_1, \ldots, \text{head}_H) W^O $$
#
# $$ \text{head}_i = \text{Attention}(Q W_i^Q, K W_i^K, V W_i^V) \qquad \text{(section 3.2.2, not numbered)} $$
#
# In the code, the projections of all heads are one matrix, and a head is a slice of the result.

# %%
source(split_heads, Attention.queries_keys_values, Attention.forward)

# %% [markdown]
# To see that the slices are the paper's heads, we compute each head alone by equation 1, from its own rows of the
# matrix.

# %%
seed_everything(8)
many = Attention(d_model=64, heads=4, dropout=0.0).double().eval()
states = torch.randn(1, 7, 64, dtype=torch.float64)
with torch.no_grad():
    query_rows, key_rows, value_rows = (rows.chunk(4) for rows in many.project.weight.chunk(3))
    alone = []
    for queries_by, keys_by, values_by in zip(query_rows, key_rows, value_rows, strict=True):
        scores = (states @ queries_by.T) @ (states @ keys_by.T).mT / math.sqrt(64 / 4)
        alone.append(scores.softmax(-1) @ (states @ values_by.T))
    joined = torch.cat(alone, dim=-1) @ many.output.weight.T
    heads_differ = (joined - many(states)).abs().max().item()
sizes = {size_of(Attention(64, count, 0.0)) for count in (1, 4, 8)}
say(f"""
Computed head by head, the result differs by at most {tiny(heads_differ)}. More heads cost no weights: an attention of
width {many.project.in_features} has {" or ".join(f"{size:,}" for size in sizes)} weights
with one head, with four and with eight.
""")

# %% tags=["slow"]
compare(usual, one_head, caption="Four heads (as it is here) and one head of the full width.")

# %% tags=["slow"]
say(f"""
Four heads end at a loss of {last(usual):.2f}, one head at {last(one_head):.2f}. The paper reports the same for its base
model: one head is {PAPER_ONE_HEAD} BLEU worse than the best number of heads (section 6.2).
""")

# %% [markdown]
# ## 9. Layers
#
# Between attentions, each position is worked on alone, by two linear maps with a ReLU between them:
#
# $$ \text{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2 \qquad \text{(equation 2)} $$
#
# Around each sub-layer is a residual connection: the sub-layer computes what is added to its input. The paper
# normalises after the sum (section 3.1: $\text{LayerNorm}(x + \text{Sublayer}(x))$), here called `post`. The default
# here is `pre`: $x + \text{Sublayer}(\text{LayerNorm}(x))$, which part 18 compares with it.

# %%
source(FeedForward, Residual)

# %%
source(EncoderLayer, DecoderLayer.forward)

# %% [markdown]
# ### Why does pre-norm need a norm at the end?
#
# With `post` every layer ends in a norm. With `pre` nothing normalises the sum itself: each sub-layer adds to it, so it
# grows from layer to layer. The vector that goes from the last layer to the softmax would have a size that depends on
# the depth. One more norm after the last layer sets it to a fixed size, whatever the depth. We measure the sum in deep
# models without any training:


# %%
def deep_model(norm: str, layers: int, final_norm: bool = True) -> Transformer:
    """An untrained model; with or without the norm after the last layer."""
    seed_everything(9)
    chosen = knobs.changed(norm=norm, layers=layers)
    model = Transformer(chosen.take(TransformerConfig, vocabulary=len(vocabulary), max_positions=128)).eval()
    return model if final_norm else without_final_norm(model)


def without_final_norm(model: Transformer) -> Transformer:
    """The model, with nothing in the place of its two last norms."""
    model.encoder_norm = model.decoder_norm = nn.Identity()
    return model


def sizes_by_layer(norm: str, layers: int = 12) -> list[dict]:
    """The typical entry of the states after each layer of the encoder."""
    model, rows = deep_model(norm, layers), []
    hooks = [
        layer.register_forward_hook(lambda layer, given, states: rows.append(root_mean_square(states)))
        for layer in model.encoder
    ]
    memory_of(model, words)
    for hook in hooks:
        hook.remove()
    return [{"layer": number, "typical entry": size, "norm": norm} for number, size in enumerate(rows, start=1)]


grown = pd.DataFrame(sizes_by_layer("pre") + sizes_by_layer("post"))
figure(
    lines(grown, "layer", "typical entry", "norm", zero=True),
    "Size of the states after each layer of an untrained encoder.",
)

# %%
depths = pd.DataFrame(
    [
        {
            "layers": depth,
            "first loss with the last norm": first_loss(deep_model("pre", depth)),
            "without it": first_loss(deep_model("pre", depth, final_norm=False)),
        }
        for depth in (2, 6, 12)
    ]
)
table(depths, "Loss of untrained pre-norm models, with and without the norm after the last layer.")

# %%
last_layer = grown[grown["norm"] == "pre"]["typical entry"]
say(f"""
With `pre` the states grow from {last_layer.iloc[0]:.1f} after the first layer to {last_layer.iloc[-1]:.1f} after layer
{len(last_layer)}. Without the last norm, a model of {depths["layers"].iloc[-1]} layers therefore starts with a loss of
{depths["without it"].iloc[-1]:.1f}; with it, with {depths["first loss with the last norm"].iloc[-1]:.1f}, near the
{math.log(len(vocabulary)):.1f} of a blind guess.
""")

# %% [markdown]
# The experiment, on a narrow model of six layers:

# %% tags=["slow"]
DEEP = {
    "d_model": 32,
    "d_ff": 64,
    "layers": 6,
    "batch_tokens": 512,
    "device_tokens": 512,
    "optimiser": "adam",
    "lr_factor": 1.0,
    "warmup": 20,
}
_, deep_pre = small("pre, with the last norm", updates=100, **DEEP)
bare = new_trainer(
    data, len(vocabulary), kind=lambda config: without_final_norm(Transformer(config)), **{**SMALL, **DEEP}
)
deep_bare = curve("pre, without it", bare, updates=100)
compare(deep_pre, deep_bare, caption="Six pre-norm layers, with and without the norm after the last one.")

# %% tags=["slow"]
say(f"""
After {deep_pre["update"].iloc[0]} updates the losses are {deep_pre.iloc[0, 1]:.2f} with the norm and
{deep_bare.iloc[0, 1]:.2f} without, after {deep_pre["update"].iloc[-1]} updates {last(deep_pre):.2f} and
{last(deep_bare):.2f}.
""")

# %% [markdown]
# ## 10. The whole model, and its number of weights
#
# Embeddings, encoder, decoder and projection make the model of the paper's figure 1.

# %%
source(Transformer.forward, Transformer.encode, Transformer.decode)

# %% [markdown]
# Table 3 of the paper gives two models, base and big, with their sizes and their number of weights. Section 5.1 gives
# the vocabulary of English-German. We build both (on torch's device `meta`, which stores no numbers) and count.


# %%
def kind_of(name: str) -> str:
    """The part of the model that a weight belongs to."""
    kinds = {"embedding": "embeddings", "attention": "attention", "cross": "attention", "feed_forward": "feed-forward"}
    return next((kinds[part] for part in kinds if part in name), "norms")


counted, models = [], {}
for name, published in PAPER.items():
    paper_sizes = {knob: published[knob] for knob in ("d_model", "d_ff", "heads")}
    with torch.device("meta"):
        models[name] = Transformer(
            knobs.changed(**paper_sizes, layers=6, norm="post").take(
                TransformerConfig, vocabulary=PAPER_VOCABULARY, max_positions=128
            )
        )
    parts = Counter()
    for weight_name, weight in models[name].named_parameters():
        parts[kind_of(weight_name)] += weight.numel()
    counted += [{"part": part, "million weights": count / 1e6, "model": name} for part, count in parts.items()]
counted = pd.DataFrame(counted)
figure(bars(counted, "million weights", "part", "model"), "Where the weights of the paper's two models are.")

# %%
ours = {name: size_of(model) for name, model in models.items()}
in_layers = {name: ours[name] - models[name].source_embedding.weight.numel() for name in models}
apart_weights = ours["base"] + 2 * PAPER_VOCABULARY * PAPER["base"]["d_model"]
implied = {name: (PAPER[name]["weights"] - in_layers[name]) / PAPER[name]["d_model"] for name in models}
say(f"""
| model | counted here | the paper, table 3 | difference |
| --- | --- | --- | --- |
{
    chr(10).join(
        f"| {name} | {ours[name] / 1e6:.1f} million | {PAPER[name]['weights'] / 1e6:.0f} million | "
        f"{ours[name] / PAPER[name]['weights'] - 1:+.1%} |"
        for name in models
    )
}

The paper gives its vocabulary as "about" {PAPER_VOCABULARY:,}. Its number for big would be met exactly by
{implied["big"]:,.0f} subwords, its number for base by {implied["base"]:,.0f}. The first is within that "about". The
second is not: {(PAPER["base"]["weights"] - ours["base"]) / 1e6:.1f} million weights of base are not explained by the
paper's text. Of the base model {1 - in_layers["base"] / ours["base"]:.0%} are
embeddings, which is why sharing them (part 3) saves so much: with three matrices it would have
{apart_weights / 1e6:.0f} million weights, {1 - in_layers["base"] / apart_weights:.0%} of them embeddings.
""")

# %% [markdown]
# ## 11. Batches
#
# A batch is a rectangle of numbers. Its shorter sentences are filled up with padding, and padding costs time like
# text. So section 5.1 puts sentences of about equal length together, and limits a batch by its tokens instead of its
# sentences.

# %%
source(global_batches)

# %% [markdown]
# Measured on our text: the share of padding, and the processor's seconds for a forward pass, once with pairs in random
# order and once with `global_batches`. Both have the same number of batches.

# %%
pairs = data["train"]
bucketed = global_batches(pairs, seed=1, epoch=0, batch_tokens=1024)
at_random = np.array_split(np.random.default_rng(1).permutation(len(pairs)), len(bucketed))


def padding_of(batches: list[np.ndarray]) -> float:
    """The share of positions, source and target, that are padding."""
    shapes = sum(len(rows) * int(side[rows].max()) for rows in batches for side in lengths_of_sides)
    return 1 - sum(int(side.sum()) for side in lengths_of_sides) / shapes


def seconds_of(batches: list[np.ndarray]) -> float:
    """Seconds of the processor for the states of every fourth of these batches."""
    started = time.process_time()
    with torch.no_grad():
        for rows in batches[::4]:
            batch = pairs.batch(rows)
            fresh(torch.from_numpy(batch.source), torch.from_numpy(batch.target_input))
    return time.process_time() - started


lengths_of_sides = pairs.source_lengths, pairs.target_lengths
seconds_of(bucketed), seconds_of(at_random)  # a first pass is slower: it prepares a program for each new shape
ways = pd.DataFrame(
    [
        {"batches": name, "share of padding": padding_of(batches), "seconds": seconds_of(batches)}
        for name, batches in (("random order", at_random), ("similar lengths", bucketed))
    ]
)
figure(bars(ways, "share of padding", "batches", text=".1%"), "Share of padding in the batches of the toy corpus.")

# %%
rows_of = ways.set_index("batches")
say(f"""
Sentences of similar length have {rows_of["share of padding"]["similar lengths"]:.1%} padding, random ones
{rows_of["share of padding"]["random order"]:.1%}. A forward pass over every fourth batch took
{rows_of["seconds"]["similar lengths"]:.2f} and {rows_of["seconds"]["random order"]:.2f} seconds.
Which pairs share a batch, and the order of the batches, changes with the epoch, so a pair is not always
beside the same other pairs.
""")

# %% [markdown]
# ## 12. The learning rate
#
# The rate rises for `warmup` updates and then falls with the root of the number of updates:
#
# $$ \text{rate} = d_\text{model}^{-0.5} \cdot \min(\text{step}^{-0.5}, \text{step} \cdot \text{warmup}^{-1.5})
# \qquad \text{(equation 3)} $$

# %%
source(learning_rate)

# %%
SETTINGS = ((512, 4000), (512, 8000), (256, 4000))  # (d_model, warmup)
rates = pd.DataFrame(
    [
        {
            "update": step,
            "learning rate": learning_rate(step, width, warmup),
            "setting": f"d_model {width}, warmup {warmup}",
        }
        for width, warmup in SETTINGS
        for step in [1, *range(100, 20001, 100)]
    ]
)
figure(lines(rates, "update", "learning rate", "setting", zero=True), "The rate of equation 3 for three settings.")

# %%
peaks = rates.loc[rates.groupby("setting", sort=False)["learning rate"].idxmax()]
say(
    "\n".join(
        f"- {row['setting']}: the peak is {row['learning rate']:.2e}, at update {row['update']:,}."
        for row in peaks.to_dict("records")
    )
    + f"""

A longer warm-up makes the peak later and lower; a narrower model gets a higher rate, by the root of the ratio of the
widths: {peaks["learning rate"].iloc[2] / peaks["learning rate"].iloc[0]:.3f} here. The same line without a warm-up
would start at {learning_rate(1, 512, 1):.4f}, which is
{learning_rate(1, 512, 1) / peaks["learning rate"].iloc[0]:.0f} times the first of these peaks.
"""
)

# %% [markdown]
# Why a warm-up at all? The experiment: a post-norm model as in the paper, trained with Adam, with a warm-up and
# without one: a warm-up of one update, to the same highest rate.

# %% tags=["slow"]
_, warm = small("with a warm-up", updates=100, norm="post", optimiser="adam", lr_factor=1.0)
same_peak = SMALL["warmup"] ** -0.5  # equation 3: the peak is lr_factor * (d_model * warmup) ** -0.5
_, cold = small("without", updates=100, norm="post", optimiser="adam", lr_factor=same_peak, warmup=1)
compare(warm, cold, caption="A post-norm model with Adam, with and without a warm-up.")

# %% tags=["slow"]
say(f"""
The loss ends at {last(warm):.2f} with the warm-up and at {last(cold):.2f} without. A blind guess that knows nothing but
the size of the vocabulary has {math.log(len(vocabulary)):.2f}.
""")

# %% [markdown]
# ## 13. Label smoothing
#
# Plain cross-entropy asks for a probability of 1 for the right subword, which only infinite logits give. Section 5.4
# takes label smoothing from Szegedy et al. 2016, who spread $\epsilon$ evenly over the whole vocabulary: the right
# subword is left with $1 - \epsilon + \epsilon / V$. Here, as in The Annotated Transformer, the right subword gets
# $1 - \epsilon$, the others share $\epsilon$, and padding gets nothing.

# %%
source(smoothed_cross_entropy)

# %% [markdown]
# The distribution that the model is asked for never exists as a table in the code. But the gradient of a cross-entropy
# by the logits is $p - q$: what the model says minus what it is asked for. So we read q off the real gradient: with
# the identity as output matrix, the states are the logits.

# %%
V, smoothing = 10, 0.1
logits = torch.zeros(5, V, dtype=torch.float64, requires_grad=True)
right = torch.tensor([4, 7, 1, 9, 4])
smoothed_cross_entropy(logits, torch.eye(V, dtype=torch.float64), right, smoothing).backward()
asked = torch.softmax(logits.detach(), -1) - logits.grad
names = ["<pad>", *(str(number) for number in range(1, V))]
figure(
    heatmap(asked.sqrt(), rows=[f"right: {number}" for number in right.tolist()], columns=names, cell=26),
    "The target distribution of five positions over a vocabulary of ten. The depth of the colour is the root of the "
    "probability, so that the small ones can be seen.",
)

# %%
say(f"""
The right subword is asked for with {asked[0, right[0]].item():.2f}, padding with {abs(asked[0, 0].item()):.2f}, and
each of the other {V - 2} with {asked[0, 1].item():.4f}. A row sums to {asked[0].sum().item():.2f}.
""")

# %% [markdown]
# What does this do to a model that is very sure? Give the right subword the probability p and let the others share the
# rest evenly, and look at the loss as p goes to 1:

# %%
penalty = []
for amount in (0.0, 0.1, 0.3):
    for odds in np.linspace(-2, 16, 1801):  # logit of the right subword above the others
        logit = torch.zeros(1, V, dtype=torch.float64)
        logit[0, 0], logit[0, 4] = -1e3, float(odds)  # padding gets nothing
        loss = smoothed_cross_entropy(logit, torch.eye(V, dtype=torch.float64), torch.tensor([4]), amount).item()
        probability = torch.softmax(logit, -1)[0, 4].item()
        penalty.append(
            {
                "logit above the others": odds,
                "loss": loss,
                "probability": probability,
                "label smoothing": f"label_smoothing {amount}",
            }
        )
penalty = pd.DataFrame(penalty)
figure(
    lines(penalty[::20], "logit above the others", "loss", "label smoothing", zero=True),
    "The loss of a model that prefers the right subword more and more.",
)

# %%
least = penalty.loc[penalty.groupby("label smoothing", sort=False)["loss"].idxmin()]
say(
    "\n".join(
        f"- {row['label smoothing']}: the loss is least at p = {row['probability']:.3f}."
        for row in least.to_dict("records")
    )
    + """

Without smoothing more certainty is always better. With it the loss turns and rises: a model is punished for being surer
than it was asked to be.
"""
)

# %% [markdown]
# In training: the mean probability that the model gives to its own best guess, beside how often this guess is right.


# %%
def confidence(trainer: Trainer) -> tuple[float, float]:
    """Mean probability of the likeliest subword, and how often it is right, on the validation pairs."""
    with torch.no_grad():
        batch = trainer.batch(trainer.valid_pairs, np.arange(len(trainer.valid_pairs)))
        states, weight, targets = predict(trainer.model, batch)
        best = (states @ weight.T).softmax(-1).max(-1)
    return best.values.mean().item(), (best.indices == targets).double().mean().item()


# %% tags=["slow"]
plain_trainer, _ = small("label_smoothing 0", label_smoothing=0.0)
sureness = pd.DataFrame(
    [
        {"training": name, "mean probability of the best guess": sure_of, "the guess is right": hits}
        for name, trainer in (("label_smoothing 0.1", baseline), ("label_smoothing 0", plain_trainer))
        for sure_of, hits in [confidence(trainer)]
    ]
)
table(sureness, "How sure two models are, and how often they are right. Both are fractions of 1.")

# %% [markdown]
# The smoothed model claims less. The paper says the same: smoothing hurts the perplexity and helps accuracy and BLEU
# (section 5.4). On a text as small as ours only the first half is certain.

# %% [markdown]
# ## 14. A first model: copy ten numbers
#
# All parts together. The task is to give back ten numbers from 1 to 10. It needs no grammar, only positions and
# attention over the source, so a small model learns it soon; the seconds are printed below. One update looks like this:

# %%
source(Trainer.update)

# %%
numbers = copy_corpus()
english = Side("en", lowercase=False)
copy_tokens = {
    split: [[english.tokens(line) for line in pair] for pair in numbers[split][0].pairs()]
    for split in ("train", "valid", "test")
}
copy_vocabulary = Vocabulary.build(Counter(word for pair in copy_tokens["train"] for word in pair[1]), min_count=1)
copy_data = save_pairs(copy_tokens, Merges("#version: 0.2\n"), copy_vocabulary, folder / "copy")
copier = new_trainer(copy_data, len(copy_vocabulary), recipe="copy")
question = copy_vocabulary.ids(copy_tokens["test"][0][0])
say(f"""
The recipe is `recipes/copy.yaml`: a model of {size_of(copier.model):,} weights, {len(copy_data["train"]):,} training
lines, and a vocabulary of {len(copy_vocabulary)} entries. The first test line, which is not in the training text, is
`{copy_vocabulary.text(question)}`.
""")

# %% [markdown]
# Training, live. Every line shows what the model makes of that test line by greedy decoding, which takes the likeliest
# subword at each step until `</s>`.

# %% tags=["slow"]
greedy = SearchConfig(beam_size=1, length_penalty=0.0)
started, updates = time.perf_counter(), 0
while updates < 300:
    for _ in range(30):
        updates += 1
        copier.update(updates)
    copier.model.eval()
    answer = copy_vocabulary.text(translate_ids([copier.model], [question], greedy)[0][0].ids)
    print(f"update {updates:3}  loss {valid_loss(copier):.3f}  {time.perf_counter() - started:5.1f} s  {answer}")

# %% tags=["slow"]
say(f"After {updates} updates the model answers `{copy_vocabulary.text(question)}` with **{answer}**.")

# %% [markdown]
# Where does it look? Row i below is the state that predicts subword i of the answer, with `</s>` at the end; columns
# are the source. To copy, it must look at the same place, so the map must be a diagonal.

# %% tags=["slow"]
labels = [word.strip("▁") for word in copy_tokens["test"][0][0]] + ["</s>"]
looked = attention_maps(copier.model, question, question).cross[-1].mean(0)  # last layer, mean of its heads: (T, S)
on_diagonal = (looked.argmax(-1) == torch.arange(len(looked))).sum().item()
figure(
    heatmap(looked, rows=labels, columns=labels, cell=24, row_title="predicted", column_title="source"),
    f"Attention of the last decoder layer over the source, mean of its heads. In {on_diagonal} of {len(looked)} rows "
    "the largest weight is on the diagonal.",
)

# %% [markdown]
# ## 15. The model of `make run`
#
# This part and part 17 look at a model that translates well, `data/model`, and the first lines of its first test set.
# `make run` makes both. Where one of them is missing, the next cell trains the small model of part 2 for some more
# updates and takes that.

# %% tags=["slow"]
test_set = ROOT / f"data/raw/{Params.load(ROOT / 'params.yaml').test_sets.split()[0]}.src"
if (ROOT / "data/model/model.json").is_file() and test_set.is_file():
    translator, origin = Translator.load(ROOT / "data/model"), "`data/model`"
    trained_text = [line for line in islice(read_lines(test_set), 50) if line.strip()]
else:
    for step in range(int(usual["update"].iloc[-1]) + 1, 601):
        baseline.update(step)
    translator = Translator(TorchEngine([baseline.model.eval()]), merges, vocabulary, *sides)
    trained_text, origin = [text for text, _ in texts["test"]], "a small model that was trained for this page"
say(f"The model is {origin}. Its vocabulary has {len(translator.vocabulary):,} entries.")

# %% [markdown]
# ### Greedy search and beam search
#
# Greedy decoding never takes back a choice. Beam search keeps the N best beginnings at each step (section 6.1). Below
# is `beam_search`, then the three functions that make one step: continue all beams, set finished ones aside, keep the
# best.

# %%
source(search.beam_search, search.best_continuations, search.collect_finished, search.keep_best)

# %% [markdown]
# We watch the real search, with three beams, on one of these test sentences: of the shorter half, whose search can be
# drawn, the one whose translation has the lowest score. Squares are finished: they ended in `</s>`. Crosses were among
# the best continuations, and were dropped. Above each mark are the subword and its probability. Even a sure choice
# stops short of 1, as label smoothing (part 13) asks.

# %% tags=["slow"]
shorter_half = sorted(trained_text, key=len)[: -(-len(trained_text) // 2)]
unsure = min(shorter_half, key=lambda line: translator.alternatives([line])[0][0].score)
nodes = [{"step": 0, "place": 0.0, "label": "<s>", "kind": "beam", "parent_step": 0, "parent_place": 0.0}]
known = {0: (0.0, 0.0)}  # beam of the last step -> its place in the drawing and its log-probability
usual_step = search.keep_best


def watched(beams, candidates, decoder):
    """keep_best, which also writes down the candidates of the first sentence."""
    global known
    step, kept, names = decoder.position, {}, translator.vocabulary.subwords
    for rank, (score, parent, subword) in enumerate(zip(*(part[0].tolist() for part in candidates), strict=True)):
        if parent not in known or score == -math.inf:
            continue
        ended = subword == EOS
        kind = "finished" if ended and rank < 3 else "dropped" if ended or len(kept) == 3 else "beam"
        place, before = known[parent]
        nodes.append(
            {
                "step": step,
                "place": float(rank),
                "kind": kind,
                "parent_step": step - 1,
                "parent_place": place,
                "label": f"{names[subword]} {math.exp(score - before):.2f}",
            }
        )
        if kind == "beam":
            kept[len(kept)] = float(rank), score
    usual_step(beams, candidates, decoder)
    known = kept


with mock.patch.object(search, "keep_best", watched):
    options = translator.alternatives([unsure], beam_size=3)[0]
figure(tree(pd.DataFrame(nodes)), f"The beam search of “{unsure}”, with three beams.")

# %% tags=["slow"]
table(
    pd.DataFrame(
        [
            {
                "translation": option.text,
                "log P": option.log_probability,
                "subwords": len(option.subwords) + 1,
                "score": option.score,
            }
            for option in options
        ]
    ),
    "What the search returns, best first. Subwords are counted with </s>.",
)

# %% [markdown]
# A longer translation has more factors below 1, so log P alone prefers short ones. The score divides log P by $((5 +
# n) / 6)^\alpha$ with n subwords and $\alpha = 0.6$ (section 6.1; Wu et al. 2016, equation 14):

# %%
source(length_divisor)

# %%
divisors = pd.DataFrame(
    [
        {"subwords": n, "divisor": length_divisor(n, alpha), "alpha": f"alpha {alpha}"}
        for alpha in (0.0, 0.6, 1.0)
        for n in range(1, 41)
    ]
)
figure(lines(divisors, "subwords", "divisor", "alpha", zero=True), "The divisor of log P, by length.")

# %% tags=["slow"]
beginner = Translator(TorchEngine([plain_trainer.model.eval()]), merges, vocabulary, *sides)
toy_lines = [text for text, _ in texts["test"]]


def beams_against_greedy(model: Translator, lines: list[str]) -> str:
    """How many lines get a more, and a less, probable translation from four beams than from one."""
    searched = [model.alternatives(lines, beam_size=size, length_penalty=0.0) for size in (1, 4)]
    gains = [wide[0].log_probability - narrow[0].log_probability for narrow, wide in zip(*searched, strict=True)]
    return f"more probable in {sum(gain > 1e-4 for gain in gains)}, less in {sum(gain < -1e-4 for gain in gains)}"


say(f"""
Is it worth it? On {len(trained_text)} test sentences, the translations of four beams and those of greedy search:

- {origin}: {beams_against_greedy(translator, trained_text)}.
- the small model of part 13, after {usual["update"].iloc[-1]} updates: {beams_against_greedy(beginner, toy_lines)}.

A model that is sure of its words leaves nothing to search for. One that is not gains from beams.
""")

# %% [markdown]
# ## 16. Averaging checkpoints
#
# At the end of training the weights still jump around a good place. The paper's published models are the mean of the
# last checkpoints (section 6.1).

# %%
source(mean_weights)

# %% tags=["slow"]
late = new_trainer(data, len(vocabulary), **{**SMALL, "lr_factor": 0.8})
checkpoints, judged = [], []
for step in range(1, 201):
    late.update(step)
    if step > 150 and step % 10 == 0:
        checkpoints.append(folder / f"{step}.safetensors")
        save_weights(cpu_copy(late.model.state_dict()), checkpoints[-1])
        judged.append({"weights": f"update {step}", "loss on unseen sentences": valid_loss(late)})
late.model.load_state_dict(mean_weights(checkpoints))
judged.append({"weights": f"mean of these {len(checkpoints)}", "loss on unseen sentences": valid_loss(late)})
judged = pd.DataFrame(judged)
figure(bars(judged, "loss on unseen sentences", "weights", text=".3f"), "Checkpoints, and their mean.")

# %% tags=["slow"]
single = judged["loss on unseen sentences"][:-1]
say(f"""
The best of the checkpoints has a loss of {single.min():.3f}, their mean
{judged["loss on unseen sentences"].iloc[-1]:.3f}. It costs nothing at the time of translation.
""")

# %% [markdown]
# ## 17. What the heads look at
#
# `Translator.attention` returns the weights of every layer and head for a sentence and its translation, computed by
# `Attention.weights` of part 5, without dropout. A hook calls it on the inputs that each attention gets.

# %%
source(attention_maps, record_weights)

# %% tags=["slow"]
short = [line for line in trained_text if len(translator.subwords([line])[0]) <= 16]
sentence = max(short, key=len) if short else min(trained_text, key=len)
translation = translator.translate([sentence])[0]
maps, source_labels, target_labels = translator.attention(sentence, translation)
figure(
    heads(maps.cross),
    f"Decoder over source, each head of each layer, for “{sentence}” → “{translation}”. Rows are "
    "target subwords from top to bottom, columns source subwords from left to right.",
)

# %% [markdown]
# Two of them large: the head of this picture whose choices are sharpest, and the mean of the last layer.


# %% tags=["slow"]
def sharpest(weights: torch.Tensor) -> tuple[int, int]:
    """Layer and head with the largest mean of the largest weight of each row, from 0."""
    place = int(weights.amax(-1).mean(-1).argmax())
    return divmod(place, weights.shape[1])


layer, head = sharpest(maps.cross)
figure(
    heatmap(
        maps.cross[layer, head], target_labels, source_labels, cell=22, row_title="predicted", column_title="source"
    ),
    f"Decoder over source: layer {layer + 1}, head {head + 1}.",
)

# %% tags=["slow"]
figure(
    heatmap(
        maps.cross[-1].mean(0), target_labels, source_labels, cell=22, row_title="predicted", column_title="source"
    ),
    "Decoder over source: mean of the heads of the last layer.",
)

# %% tags=["slow"]
sums = torch.cat([part.sum(-1).flatten() for part in (maps.encoder, maps.decoder, maps.cross)])
future = maps.decoder.triu(1).max().item()
say(f"""
Rows sum to 1 within {tiny((sums - 1).abs().max().item())}. Among the rows of the sharpest head the largest weight is
{maps.cross[layer, head].amax(-1).mean().item():.2f} on average. The largest weight that the decoder gives to a later
position is {future:g}, as part 7 demands.
""")

# %% [markdown]
# The self-attention of the encoder and of the decoder, their sharpest heads:

# %% tags=["slow"]
layer, head = sharpest(maps.encoder)
figure(
    heatmap(maps.encoder[layer, head], source_labels, source_labels, cell=22),
    f"Encoder over itself: layer {layer + 1}, head {head + 1}. Rows attend to columns.",
)

# %% tags=["slow"]
layer, head = sharpest(maps.decoder[:, :, 1:])  # row 0 has one position to attend to
given = ["<s>", *target_labels[:-1]]
figure(
    heatmap(maps.decoder[layer, head], target_labels, given, cell=22, row_title="predicted", column_title="read"),
    f"Decoder over itself: layer {layer + 1}, head {head + 1}. The upper right is empty: it is the future.",
)

# %% [markdown]
# ## 18. What has changed since 2017
#
# ### The place of the norm
#
# Most models today normalise before each sub-layer. Xiong et al. 2020 give the reason: with post-norm the gradients of
# a new model are large near the output and shrink on their way down, because they pass a norm after each sub-layer.
# The knob is `norm`. Gradients of one batch in two untrained models of six layers:


# %%
def gradients_by_layer(norm: str) -> list[dict]:
    """The norm of the gradient of a feed-forward matrix in each layer of the decoder."""
    model, batch = deep_model(norm, 6), data["valid"].batch(np.arange(40))
    states = model(torch.from_numpy(batch.source), torch.from_numpy(batch.target_input)).flatten(0, 1)
    targets = torch.from_numpy(batch.targets)
    loss = smoothed_cross_entropy(states[torch.from_numpy(batch.places)], model.output_weight, targets, 0.1)
    (loss / len(targets)).backward()
    norms = [layer.feed_forward.outer.weight.grad.norm().item() for layer in model.decoder]
    return [{"layer": number, "norm of the gradient": size, "norm": norm} for number, size in enumerate(norms, start=1)]


slopes = pd.DataFrame(gradients_by_layer("pre") + gradients_by_layer("post"))
figure(
    lines(slopes, "layer", "norm of the gradient", "norm", zero=True),
    "Gradient of the second feed-forward matrix in each decoder layer, before any training.",
)

# %%
at_layer = slopes.set_index(["norm", "layer"])["norm of the gradient"]
say(f"""
From the last decoder layer down to the first, the gradient becomes
{at_layer["post", 6] / at_layer["post", 1]:.1f} times smaller with post-norm. With pre-norm the first layer has
{at_layer["pre", 1] / at_layer["pre", 6]:.1f} times the gradient of the last.
""")

# %% [markdown]
# The same two in training, with the same rates:

# %% tags=["slow"]
_, deep_post = small("post, as in the paper", updates=100, norm="post", **DEEP)
compare(deep_pre.assign(model="pre"), deep_post, caption="Six layers, norms before or after the sub-layers.")

# %% tags=["slow"]
say(f"""
The losses end at {last(deep_pre):.2f} (pre) and {last(deep_post):.2f} (post). Post-norm is not broken: the paper
trained six layers with it, with a warm-up of {SETTINGS[0][1]:,} updates. In our {deep_post["update"].iloc[-1]} it has
hardly begun to learn.
""")

# %% [markdown]
# ### The optimiser
#
# Adam scales the step of each weight separately. Muon (Jordan et al. 2024) treats the gradient of a matrix as a matrix:
# it makes the step orthogonal, so that no direction is left behind. The knob is `optimiser`; Adam keeps embeddings,
# biases and norms.

# %%
source(orthogonal, Muon.step)

# %%
seed_everything(18)
gradient = torch.randn(1, 64, 4) @ torch.randn(1, 4, 64) + 0.1 * torch.randn(1, 64, 64)  # a few directions dominate
values = {"gradient": gradient[0] / torch.linalg.matrix_norm(gradient[0]), "made orthogonal": orthogonal(gradient)[0]}
spectrum = pd.DataFrame(
    [
        {"number": number, "singular value": value, "matrix": name}
        for name, matrix in values.items()
        for number, value in enumerate(torch.linalg.svdvals(matrix).tolist(), start=1)
    ]
)
figure(
    lines(spectrum, "number", "singular value", "matrix", zero=True),
    "Singular values of a matrix before and after `orthogonal`: a few directions carry it before, all do after.",
)

# %% tags=["slow"]
_, with_adam = small("Adam", optimiser="adam")
compare(usual.assign(model="Muon"), with_adam, caption="The same small model with Muon and with Adam, same schedule.")

# %% tags=["slow"]
reached = usual[usual["loss on unseen sentences"] <= last(with_adam)]["update"].min()
say(f"""
After {with_adam["update"].iloc[-1]} updates Muon is at {last(usual):.2f} and Adam at {last(with_adam):.2f}. Muon was at
Adam's final loss by update {reached}.
""")

# %% [markdown]
# ### Fused attention
#
# Equation 1 as written stores T times S weights for each head. Fused kernels (Dao et al. 2022) compute the same sum
# block by block and never store them. `Attention.attend`, shown in part 5, calls torch's for inference on a CPU when
# there are many queries, and always on a GPU. The same method, both ways:

# %%
seed_everything(18)
wide = Attention(d_model=256, heads=4, dropout=0.0).eval()
timed, apart_by = [], 0.0
for length in (128, 256, 512, 1024):
    states = torch.randn(2, length, 256)
    results = {}
    for name, above in (("fused", cpu.FUSED_ABOVE), ("as equation 1 is written", length)):
        with mock.patch.object(cpu, "FUSED_ABOVE", above), torch.no_grad():
            given = wide.queries_keys_values(states)
            results[name] = wide.attend(*given, None)
            taken = []
            for _ in range(5):
                started = time.process_time()
                wide.attend(*given, None)
                taken.append(time.process_time() - started)
        timed.append({"subwords": length, "milliseconds": 1000 * min(taken), "attention": name})
    apart_by = max(apart_by, (results["fused"] - results["as equation 1 is written"]).abs().max().item())
timed = pd.DataFrame(timed)
figure(
    lines(timed, "subwords", "milliseconds", "attention", zero=True),
    "Time of one attention over two sentences, four heads, by length. Best of five.",
)

# %%
longest = timed[timed["subwords"] == timed["subwords"].max()].set_index("attention")["milliseconds"]
say(f"""
Both give the same result within {tiny(apart_by)}. At {timed["subwords"].max():,} subwords the fused kernel took
{longest["fused"]:.0f} ms, the other {longest["as equation 1 is written"]:.0f} ms. The weights that it does not store
would take {2 * 4 * int(timed["subwords"].max()) ** 2 * 4 / 2**20:.0f} MiB.
""")

# %% [markdown]
# ## 19. Where to go on
#
# - `params.yaml` has a knob for each choice of this text: `norm`, `heads`, `tie_embeddings`, `label_smoothing`,
#   `optimiser` and the others ([docs/params.md](../docs/params.md)). `dvc exp run -S norm=post` trains with one
#   changed.
# - The report of a run, `reports/report.html`, has its scores, its curves and its worst translations.
# - [docs/architecture.md](../docs/architecture.md) says in which folder each part lies.
# - This text is `docs/walkthrough.py`. `make notebook` makes a notebook of it in which you can change each cell;
#   `make walkthrough` runs it and makes this page.

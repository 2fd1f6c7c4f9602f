# %% [markdown]
# # The Transformer, line by line
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/)
#
# **"Attention Is All You Need" as one program: a model, its training, its search, and a translator that learns while
# you read.** The program needs torch, numpy and altair and no graphics processor; for the numbers of Multi30k and of
# part 4, two files beside it. All of it runs in about four minutes on two cores. The link above opens Colab, which asks
# for the address of this repository and then for `docs/walkthrough.ipynb`. On your own machine (the plain torch is
# three gigabytes on Linux, this build 200 megabytes):
#
#     pip install numpy altair notebook
#     pip install torch --index-url https://download.pytorch.org/whl/cpu
#
# You need Python, numpy, and what a gradient is; no translation, no torch: what we use of it is explained on the way.
# "The paper" is Vaswani et al. 2017 ([arXiv 1706.03762](https://arxiv.org/abs/1706.03762)). The form follows
# [The Annotated Transformer](https://nlp.seas.harvard.edu/annotated-transformer/), which taught this model to many of
# us: Alexander Rush wrote it in 2018 with Vincent Nguyen and Guillaume Klein; Austin Huang, Suraj Subramanian, Jonathan
# Sum, Khalid Almubarak and Stella Biderman renewed it in 2022. Thank you. No sentence and no line of code is taken from
# it.
#
# **Part 1** builds the model, **part 2** trains it and searches with it, **part 3** translates German, **part 4**
# measures why each piece is there, **part 5** makes a language model of it. Exercises are at the end.
#
# **Letters.** Capitals have one meaning: B sentences at a time, S subwords of a source sentence, T of a target
# sentence, D the width of the model (the paper's $d_\text{model}$), H heads ($h$), F the inner width of a feed-forward
# layer ($d_\text{ff}$), N layers, C choices: subwords that the model knows. A *subword* is a word or a piece of one. A
# comment such as `# (B, T, D)` is the shape of a result.
#
# **For readers of numpy.** `a.transpose(i, j)` swaps two axes; `a.max(d)` gives `.values` and `.indices`;
# `unflatten(-1, (H, -1))` cuts the last axis into two; `flatten(2)` joins all axes from 2 on; `masked_fill(m, v)` is
# `np.where(m, v, a)`; `cat` is `concatenate`; `expand` repeats without a copy; a name that ends in `_` changes in
# place; `nn.Parameter` is a learned array; `requires_grad` asks for gradients; `detach` drops them; `backward()` fills
# `.grad`, to which it adds, so `zero_grad()` comes first; `state_dict()` is {name: weights}.

# %%
import functools
import itertools
import json
import math
import random
import re
import time
from collections import Counter
from pathlib import Path

import altair as alt
import numpy as np
import torch
from torch import nn

torch.manual_seed(1)  # the same random numbers in each run
torch.set_num_threads(1)  # our products are too small to share
torch.set_printoptions(precision=2, sci_mode=False)
words = ["the", "dog", "sleeps"]
x = torch.randn(1, 3, 8)  # (B, T, D): one sentence, 3 words, D = 8
print(x)

# %% [markdown]
# # Part 1: the model
#
# That sentence, a vector of D = 8 random numbers for each of three words, is the test of every piece until the model
# stands.
#
# Before 2017, translators were recurrent networks: they read word after word, so word 50 waits for 49 others, and what
# word 1 said must survive 49 changes of one vector. Convolutions (ByteNet, ConvS2S) read all words at once, but words
# far apart meet only after many layers. Attention was an addition to recurrence (Bahdanau et al. 2015). The paper keeps
# it alone: every word looks at every other in one step, and a layer is a few large products of matrices.
#
# The model has two halves. The *encoder* reads the source and makes a vector for each of its subwords; together they
# are the *memory*. The *decoder* reads the memory and the target so far, and says what comes next; that is added to the
# target, and the decoder is asked again. We build both from their smallest parts.
#
# ![The Transformer: encoder on the left, decoder on the right](images/walkthrough/architecture.svg)
#
# *Figure 1 of the paper, drawn anew, with the shapes of what flows.*
#
# ## Softmax
#
# Attention needs weights: positive numbers that sum to 1. Softmax makes them from any scores $z_1, z_2, \ldots$:
#
# $$
# \text{softmax}(z)_i = \frac{e^{z_i}}{\sum_j e^{z_j}}
# $$
#
# A score of $-\infty$ gets the weight 0. Taking the largest score off all of them changes nothing and avoids overflow.


# %%
def softmax(scores):
    """Scores to weights that sum to 1, along the last dimension."""
    powers = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return powers / powers.sum(-1, keepdim=True)


print(softmax(torch.tensor([1.0, 2.0, 3.0, -math.inf])))

# %% [markdown]
# ## Scaled dot-product attention (section 3.2.1)
#
# A dictionary of Python holds keys and values; a query that equals a key returns its value. Attention does it softly,
# with vectors. The product of a query with each key is a score; softmax turns scores into weights; the answer is the
# mean of the values with these weights. For many queries at once, one in each row of the matrix $Q$, with keys $K$ and
# values $V$ ($K^\top$ is $K$ with rows and columns exchanged, $d_k$ the width of a key; equation 1):
#
# $$
# \text{Attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V
# $$
#
# The root: if the entries of a query and a key are independent with mean 0 and variance 1, their product is a sum of
# $d_k$ terms, with variance $d_k$. Large scores make softmax a hard choice, whose gradient is almost 0. Divided by the
# root, the variance is 1. The paper also names additive attention, a small network for each score: as good, but slower
# than a product of matrices.
#
# A *mask* says where a query may look: True is allowed, False gets the score $-\infty$.


# %%
def attention(Q, K, V, mask=None):
    """(..., T, d_k), (..., S, d_k), (..., S, d_v) to (..., T, d_v).

    Returns the answers, and the weights (..., T, S).
    """
    scores = Q @ K.transpose(-2, -1) / math.sqrt(K.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax(scores)
    return weights @ V, weights


answers, weights = attention(x, x, x)
print(weights[0])

# %% [markdown]
# Here the sentence attends to itself: queries, keys and values are the same vectors. So each word likes itself best;
# learned projections will change that. A function draws such weights: rows look, columns are looked at.


# %%
def heatmap(maps, rows, columns=None, low=0, step=0):
    """Draw matrices: {title: matrix}, the names of rows and columns.

    0 is the background, 1 blue; below 0, down to `low`, orange.
    """
    rows, columns = (
        [f"{i} {name}" for i, name in enumerate(names)]
        for names in (rows, columns or rows)
    )
    cells = [
        dict(map=title, row=row, column=column, value=round(v, 3))
        for title, matrix in maps.items()
        for row, line in zip(rows, torch.as_tensor(matrix).tolist())
        for column, v in zip(columns, line)
    ]
    colours = ["#c2560c", "white", "#08519c"][0 if low else 1 :]
    domain = [low, 0, 1][0 if low else 1 :]
    scale = alt.Scale(domain=domain, range=colours, interpolate="rgb")
    size = step or min(30, max(12, 130 // len(columns)))
    hide = size < 10  # small cells: some names are left out
    axis = alt.Axis(title=None, labelFontSize=10, labelOverlap=hide)
    chart = (
        alt.Chart(alt.Data(values=cells))
        .mark_rect()
        .encode(
            alt.X("column:N", sort=None, axis=axis),
            alt.Y("row:N", sort=None, axis=axis),
            alt.Color("value:Q", legend=None, scale=scale),
            tooltip=["row:N", "column:N", "value:Q"],
        )
    )
    step = alt.Step(size)
    chart = chart.properties(width=step, height=step)
    titles = alt.Facet("map:N", sort=None, title=None)
    return chart.facet(titles, columns=2)


heatmap({"Self-attention": weights[0]}, words)

# %% [markdown]
# ## Many heads (section 3.2.2)
#
# One softmax gives one mean. To look at several places at once, $h$ attentions run side by side, each with its own
# learned projections $W_i^Q, W_i^K, W_i^V$ to a smaller width; their answers are joined and projected once more, by
# $W^O$:
#
# $$
# \text{MultiHead}(Q, K, V) = \text{Concat}(\text{head}_1, \ldots, \text{head}_h) W^O
# $$
#
# $$
# \text{head}_i = \text{Attention}(Q W_i^Q, K W_i^K, V W_i^V)
# $$
#
# The paper has $h = 8$ heads of width $d_k = d_v = 64$, so all of them are as wide as the model,
# $d_\text{model} = 512$, and cost what one wide head costs. In code the projections of all heads are one matrix, whose
# result is cut into H pieces. Queries come from `x`, keys and values from `memory`, which may be another sentence.
# `nn.Linear` is $xW + b$ with a learned matrix and bias; `nn.Module` finds all learned numbers inside a class, and
# calling an object of such a class runs its `forward`. We start matrices with random numbers of the size that keeps
# vectors about as large as they were (Glorot and Bengio 2010).
#
# ![Left: scaled dot-product attention. Right: several heads](images/walkthrough/attention.svg)
#
# *Figure 2 of the paper, drawn anew.*


# %%
def linear(inputs, outputs):
    """A learned x W + b, with Glorot's random numbers and b = 0."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class MultiHead(nn.Module):
    """Queries from x, keys and values from memory, in H heads."""

    def __init__(self, D, H):
        super().__init__()
        self.H = H
        self.query, self.key = linear(D, D), linear(D, D)
        self.value, self.output = linear(D, D), linear(D, D)

    def split(self, x):  # (B, T, D) -> (B, H, T, D/H)
        return x.unflatten(-1, (self.H, -1)).transpose(1, 2)

    def forward(self, x, memory, mask=None):
        """x (B, T, D) and memory (B, S, D) to (B, T, D)."""
        Q, K = self.split(self.query(x)), self.split(self.key(memory))
        V = self.split(self.value(memory))
        heads, weights = attention(Q, K, V, mask)
        self.weights = weights.detach()  # (B, H, T, S), for pictures
        return self.output(heads.transpose(1, 2).flatten(2))


heads = MultiHead(D=8, H=2)
print(heads(x, x)[0])
first, second = heads.weights[0]
heatmap({"Head 1": first, "Head 2": second}, words)

# %% [markdown]
# `grad_fn`, in what is printed, says that torch remembers how a result was made; from that it computes gradients later.
#
# The model attends in three places (section 3.2.3). In the encoder, each source position looks at all source positions.
# In the decoder, each target position looks at itself and at earlier ones. Between the two, queries come from the
# decoder, keys and values from the memory; so each target position sees the whole source.
#
# ## The feed-forward network (section 3.3)
#
# Attention mixes positions. This network works on each position alone, with the same weights at all of them (equation
# 2):
#
# $$
# \text{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2
# $$
#
# The paper goes from 512 numbers to 2,048 inside, $d_\text{ff}$, and back. Below, 8 to 16 and back.


# %%
class FeedForward(nn.Module):
    """Two linear maps with a maximum of 0 and x between them."""

    def __init__(self, D, F):
        super().__init__()
        self.inner, self.outer = linear(D, F), linear(F, D)

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)))


print(FeedForward(D=8, F=16)(x)[0])

# %% [markdown]
# ## Layer norm and the residual connection (section 3.1)
#
# A layer norm (Ba et al. 2016) sets the mean $\mu$ of a vector's D entries to 0 and their variance $\sigma^2$ to 1,
# then scales and shifts each entry by learned numbers $g$ and $b$, which start as 1 and 0 ($\odot$ multiplies entry by
# entry):
#
# $$
# \text{LayerNorm}(x) = g \odot \frac{x - \mu}{\sqrt{\sigma^2 + 10^{-5}}} + b
# $$


# %%
class LayerNorm(nn.Module):
    """Each vector with mean 0 and variance 1, scaled and shifted."""

    def __init__(self, D):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(D))
        self.shift = nn.Parameter(torch.zeros(D))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred**2).mean(-1, keepdim=True)
        normal = centred / torch.sqrt(variance + 1e-5)
        return self.scale * normal + self.shift


normal = LayerNorm(8)(10 * x + 3)
print("means:    ", normal.mean(-1)[0].detach())
print("variances:", (normal**2).mean(-1)[0].detach())

# %% [markdown]
# Attention and feed-forward are *sub-layers*. Each computes what is added to its input, so a stack of them can start
# near "change nothing", and gradients have a way around each. The paper normalises after the sum,
# $\text{LayerNorm}(x + \text{Sublayer}(x))$, called *post*; most models today before the sub-layer,
# $x + \text{Sublayer}(\text{LayerNorm}(x))$, called *pre*.
#
# **Dropout** (section 5.4) is the paper's $P_\text{drop} = 0.1$ (0.3 in the big model, 0.1 for English to French):
# while training, a tenth of the sub-layer's entries, chosen at random, become 0, and the others grow by 1 / 0.9. So no
# later layer relies on a single entry. It is off when the model translates. Below, the sub-layer is $\max(0, x)$.


# %%
class Residual(nn.Module):
    """A sub-layer with its residual connection, norm and dropout."""

    def __init__(self, D, dropout=0.1, pre=False):
        super().__init__()
        self.norm, self.pre = LayerNorm(D), pre
        self.dropout = nn.Dropout(dropout)

    def forward(self, sublayer, x):
        before = self.norm(x) if self.pre else x
        total = self.dropout(sublayer(before)) + x
        return total if self.pre else self.norm(total)


print("post:", Residual(8, dropout=0)(torch.relu, x)[0, 0])
print("pre: ", Residual(8, dropout=0, pre=True)(torch.relu, x)[0, 0])

# %% [markdown]
# ## Embeddings and positions (sections 3.4 and 3.5)
#
# The model knows a subword by a number, its *id*. A learned table has a row of D entries for each of the C ids. One
# table serves three times: for the source, for the target, and at the end, where the product of a state with every row
# scores the next subword. For that its entries must be small, about $1 / \sqrt{D}$; so at the input they are multiplied
# by $\sqrt{D}$.
#
# Attention would give the same for any order of the words. So each row gets a vector added that depends on its position
# alone ($pos$ counts positions from 0, $i$ pairs of entries):
#
# $$
# PE_{(pos, 2i)} = \sin(pos / 10000^{2i / d_\text{model}})
# $$
#
# $$
# PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i / d_\text{model}})
# $$
#
# The waves are from $2 \pi$ to almost $10000 \cdot 2 \pi$ positions long. A sine and a cosine of one wave are a point
# on a circle. Some positions later it has turned by an angle that depends on their number alone, so one linear map can
# look, say, three places back from anywhere. The paper hoped that this also serves sentences longer than those of the
# training. Learned vectors did as well in the paper. Dropout is applied to the sum of embedding and position.


# %%
def sinusoids(length, D):
    """Encodings of the positions 0 to length - 1: (length, D)."""
    position = torch.arange(length)[:, None]
    angle = position / 10000 ** (torch.arange(0, D, 2) / D)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)


class Embedding(nn.Module):
    """Ids (B, T) to vectors with their positions (B, T, D)."""

    def __init__(self, C, D, dropout=0.1):
        super().__init__()
        self.table = nn.Parameter(torch.randn(C, D) / math.sqrt(D))
        self.dropout, self.positions = nn.Dropout(dropout), sinusoids

    def forward(self, ids):
        D = self.table.shape[1]
        x = self.table[ids] * math.sqrt(D)
        return self.dropout(x + self.positions(ids.shape[1], D))


PAD, UNK, BOS, EOS = range(4)  # <pad>, <unk>, <s>, </s>: see below
ids = torch.tensor([[4, 5, 6]])  # "the dog sleeps"
x = Embedding(C=7, D=8, dropout=0)(ids)
print(x[0])
heatmap(
    {"Encodings of 40 positions": sinusoids(40, 32).T},
    [""] * 32,
    [""] * 40,
    low=-1,
    step=7,
)

# %% [markdown]
# Rows are entries, columns positions: follow a row to see its wave. Two rows, sine and cosine, share one wave; waves
# get longer from top to bottom. 0 is the background, 1 blue, -1 orange. The first four ids stand for padding,
# an unknown subword, the start and the end of a sentence.
#
# ## The encoder, and the mask of padding
#
# A layer of the encoder has two sub-layers; the paper stacks N = 6 layers. Sentences of a batch have different lengths,
# so short ones are filled with `<pad>`, at which nobody may look.


# %%
def several(number, part, *sizes):
    """A list of parts, whose learned numbers torch finds."""
    return nn.ModuleList(part(*sizes) for _ in range(number))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward: (B, S, D) to (B, S, D)."""

    def __init__(self, D, F, H, dropout=0.1, pre=False):
        super().__init__()
        self.attention = MultiHead(D, H)
        self.feed_forward = FeedForward(D, F)
        self.residuals = several(2, Residual, D, dropout, pre)

    def forward(self, x, mask=None):
        def attend(states):
            return self.attention(states, states, mask)

        steps = attend, self.feed_forward
        for residual, step in zip(self.residuals, steps):
            x = residual(step, x)
        return x


def padding_mask(ids):  # (B, S) -> (B, 1, 1, S), for all H and T
    return (ids != PAD)[:, None, None]


encoder = EncoderLayer(D=8, F=16, H=2, dropout=0)
mask = padding_mask(torch.tensor([[4, 5, PAD]]))
print(encoder(x, mask)[0])
print("looks at padding:", encoder.attention.weights[..., 2].max())

# %% [markdown]
# ## The decoder, and the mask of the future
#
# A layer of the decoder has one sub-layer more, attention to the memory. In training the decoder gets the whole target
# at once, and would copy the next word instead of guessing it; so a position may look at itself and at what is left of
# it only. Padding in the target needs no mask of its own: it stands at the end, where no real position may look, and
# what it predicts gives no loss.


# %%
class DecoderLayer(nn.Module):
    """Masked self-attention, attention to memory, feed-forward."""

    def __init__(self, D, F, H, dropout=0.1, pre=False):
        super().__init__()
        self.attention, self.cross = MultiHead(D, H), MultiHead(D, H)
        self.feed_forward = FeedForward(D, F)
        self.residuals = several(3, Residual, D, dropout, pre)

    def forward(self, x, mask, memory, memory_mask):
        """x (B, T, D) and memory (B, S, D) to (B, T, D)."""

        def look_left(states):
            return self.attention(states, states, mask)

        def look_across(states):
            return self.cross(states, memory, memory_mask)

        steps = look_left, look_across, self.feed_forward
        for residual, step in zip(self.residuals, steps):
            x = residual(step, x)
        return x


def causal_mask(T):  # (T, T): True on and below the diagonal
    return torch.ones(T, T, dtype=torch.bool).tril()


decoder = DecoderLayer(D=8, F=16, H=2, dropout=0)
print(decoder(x, causal_mask(3), encoder(x), None)[0])
weights = decoder.attention.weights[0, 0]
heatmap({"Mask": causal_mask(3).float(), "Weights": weights}, words)

# %% [markdown]
# ## The whole model (figure 1)
#
# A translator is a probability of the next target subword, given the source and the target so far. The encoder turns
# the source into the memory, a vector for each subword; the decoder turns the target so far into a vector for each
# position; and products with the table make C scores, whose softmax is the probability. With *pre*, one more norm ends
# encoder and decoder.
#
# Now all boxes of figure 1 are there.


# %%
class Transformer(nn.Module):
    """Ids (B, S) and (B, T) to scores of what comes next (B, T, C)."""

    def __init__(
        self, C, D=512, F=2048, H=8, N=6, dropout=0.1, pre=False
    ):
        super().__init__()
        self.D, self.mask = D, causal_mask
        self.embedding = Embedding(C, D, dropout)
        sizes = D, F, H, dropout, pre
        self.encoder = several(N, EncoderLayer, *sizes)
        self.decoder = several(N, DecoderLayer, *sizes)
        norm = (LayerNorm, D) if pre else (nn.Identity,)
        self.norms = several(2, *norm)

    def encode(self, source):
        x, mask = self.embedding(source), padding_mask(source)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.norms[0](x), mask

    def decode(self, target, memory, memory_mask):
        x, mask = self.embedding(target), self.mask(target.shape[1])
        for layer in self.decoder:
            x = layer(x, mask, memory, memory_mask)
        return self.norms[1](x) @ self.embedding.table.T

    def forward(self, source, target):
        return self.decode(target, *self.encode(source))


model = Transformer(C=7, D=8, F=16, H=2, N=2)
target = torch.tensor([[BOS, 4, 5]])
print(softmax(model(ids, target))[0])

# %% [markdown]
# Three rows, for what comes after `<s>`, after `<s> 4` and after `<s> 4 5`: a probability for each of seven ids. The
# defaults are the paper's base model. How large is it? (The device "meta" counts without memory.)


# %%
def count(C, *sizes):
    """The learned numbers of a model by part, in millions."""
    with torch.device("meta"):
        model = Transformer(C, *sizes)
    parts = Counter()
    for name, weight in model.named_parameters():
        kinds = ["table", "feed_forward", "residuals"]
        part = next((k for k in kinds if k in name), "attention")
        parts[part] += weight.numel()
    print(f"{parts.total() / 1e6:.1f} million:", end=" ")
    print({part: round(n / 1e6, 1) for part, n in parts.items()})


count(37000)
count(37000, 1024, 4096, 16)

# %% [markdown]
# The paper (table 3) says 65 and 213 million, with its 37,000 subwords. The big model agrees; of the base model two
# million are not explained by the text.
#
# ## An untrained model speaks
#
# To translate, give the decoder `<s>`, append the likeliest subword, ask again, and so on until `</s>`. The answer of
# an untrained model is noise, but every part has run. `pad` makes a rectangle of lists of ids; `no_grad` means that
# nothing is remembered for gradients.


# %%
def pad(lines):
    """Lists of ids to a matrix, filled with <pad>."""
    longest = max(map(len, lines))
    return torch.tensor(
        [[*line, *[PAD] * (longest - len(line))] for line in lines]
    )


@torch.no_grad()
def greedy(model, sources, limit):
    """Lists of ids to the likeliest next ids, at most `limit`."""
    model.eval()  # without dropout
    source = pad([[*source, EOS] for source in sources])
    memory, mask = model.encode(source)
    target = torch.full((len(sources), 1), BOS)  # (B, 1)
    for _ in range(limit):
        scores = model.decode(target, memory, mask)
        scores = scores[:, -1]  # scores of the last position, (B, C)
        scores[:, [PAD, BOS]] = -math.inf  # never written
        best = scores.argmax(-1)
        target = torch.cat((target, best[:, None]), 1)
        if (target == EOS).any(1).all():  # each line has ended
            break
    lines = [[*line, EOS] for line in target[:, 1:].tolist()]
    return [line[: line.index(EOS)] for line in lines]


print(greedy(model, [[4, 5, 6], [6, 5]], limit=8))

# %% [markdown]
# ---
#
# # Part 2: training and search
#
# ## Batches (section 5.1)
#
# In training the decoder reads the right target, whatever it would have said itself, and predicts at each position what
# comes one place later. So the target stands in a batch twice: after `<s>` as what is read, and before `</s>` as what
# is wanted.
#
# ![What the decoder reads and what it must predict](images/walkthrough/shift.svg)
#
# *The position of "dog" may look at what is filled; its answer is "sleeps".*


# %%
def make_batch(pairs):
    """Pairs of ids to source (B, S), target read and wanted (B, T)."""
    source = pad([[*source, EOS] for source, _ in pairs])
    target = pad([[BOS, *target, EOS] for _, target in pairs])
    return source, target[:, :-1], target[:, 1:]


batch = make_batch([([4, 5, 6], [7, 8, 9, 10]), ([4], [7, 8])])
for name, part in zip(("source", "read", "wanted"), batch):
    print(name, part, sep="\n")

# %% [markdown]
# Padding costs time like text. So pairs of similar length share a batch, and a batch is limited by `tokens`, its
# subwords, padding included (the longer side counts), instead of its sentences. The paper's batches have about 25,000
# source and 25,000 target subwords.


# %%
def token_batches(pairs, tokens, seed, epoch):
    """The rows of each batch of one pass through the pairs."""
    chance = np.random.default_rng([seed, epoch])
    source = np.array([len(source) + 1 for source, _ in pairs])
    target = np.array([len(target) + 1 for _, target in pairs])
    longest = np.maximum(source, target)
    order = np.lexsort((chance.random(len(pairs)), source, longest))
    batches = [[]]
    for row in order.tolist():
        if len(batches[-1]) >= max(1, tokens // longest[row]):
            batches.append([])
        batches[-1].append(row)
    return [batches[i] for i in chance.permutation(len(batches))]


def padding(pairs, batches):
    """The share of padding in the sources of some batches."""
    lengths = [[len(pairs[row][0]) + 1 for row in b] for b in batches]
    filled = sum(map(sum, lengths))
    return 1 - filled / sum(max(b) * len(b) for b in lengths)


lines = [[4] * random.Random(i).randint(2, 30) for i in range(2000)]
pairs = [(line, line) for line in lines]
sorted_batches = token_batches(pairs, 1024, seed=1, epoch=0)
size = 2000 // len(sorted_batches)
mixed = [range(i, i + size) for i in range(0, 2000 - size, size)]
print(f"padding, mixed:   {padding(pairs, mixed):.1%}")
print(f"padding, by size: {padding(pairs, sorted_batches):.1%}")

# %% [markdown]
# ## The loss, and label smoothing (section 5.4)
#
# With $p$ the probabilities of the C choices and $q$ those that are wanted, the *cross-entropy* is, in nats (the unit
# of natural logarithms),
#
# $$
# -\sum_{c=1}^{C} q_c \log p_c
# $$
#
# If $q$ is 1 for the right subword, this is $-\log$ of its probability: 0.69 for one half, 0 for certainty, which only
# infinite scores reach. Label smoothing asks for $1 - \epsilon_{ls}$ instead, $\epsilon_{ls} = 0.1$, and shares
# $\epsilon_{ls}$ among the others, padding excepted. The paper cites Szegedy et al. 2016, who share it among all; this
# form is The Annotated Transformer's.


# %%
def smoothed(targets, C, smoothing=0.1):
    """Right ids (n,) to the wanted probabilities (n, C)."""
    wanted = torch.full((len(targets), C), smoothing / (C - 2))
    wanted[:, PAD] = 0
    wanted[torch.arange(len(targets)), targets] = 1 - smoothing
    return wanted


def cross_entropy(scores, wanted):
    """Scores and wanted probabilities (n, C) to the summed loss."""
    return -(wanted * scores.log_softmax(-1)).sum()


wanted = smoothed(torch.tensor([5, 4, 6]), C=7)
print("of a blind guess:", cross_entropy(torch.zeros(3, 7), wanted) / 3)
strong = smoothed(torch.tensor([5, 4, 6]), C=7, smoothing=0.5)
names = ["pad", "unk", "s", "/s", *words]
heatmap({"Wanted, smoothed": strong}, ["dog", "the", "sleeps"], names)

# %% [markdown]
# The picture has $\epsilon_{ls} = 0.5$, so that the shares can be seen. A blind guess costs $\log 7 = 1.95$, smoothed
# or not.
#
# The chart has the loss of one prediction by the probability it gives the right subword; ten others share the rest.
# With smoothing the loss rises again above $1 - \epsilon_{ls}$. The paper says that this makes perplexity worse, $e$ to
# the power of the loss, and gains BLEU, a measure of translations (part 3); part 4 measures loss and the share of right
# subwords.


# %%
def curves(lines, x, y, zero=True):
    """Draw curves, {name: (xs, ys)}, with the titles of both axes."""
    values = [
        {"name": name, "x": float(a), "y": float(b)}
        for name, (xs, ys) in lines.items()
        for a, b in zip(xs, ys)
    ]
    legend = alt.Legend(orient="bottom", columns=2)
    chart = alt.Chart(alt.Data(values=values)).mark_line(clip=True)
    return chart.encode(
        alt.X("x:Q", title=x),
        alt.Y("y:Q", title=y, scale=alt.Scale(zero=zero)),
        alt.Color("name:N", sort=None, title=None, legend=legend),
        tooltip=["name:N", "x:Q", "y:Q"],
    ).properties(width=280, height=180)


shares = torch.arange(0.02, 1, 0.005)
scores = torch.stack([shares, *[(1 - shares) / 10] * 10], 1).log()
lines = {}
for smoothing in (0.0, 0.1, 0.3):
    q = torch.tensor([1 - smoothing, *[smoothing / 10] * 10])
    losses = -(q * scores).sum(1)
    lines[f"smoothing {smoothing}"] = (shares, losses)
curves(lines, "probability of the right subword", "loss, nats")

# %% [markdown]
# ## Adam and its rate (section 5.3)
#
# Adam (Kingma and Ba 2015) keeps two running means for each weight $w$: $m$ of its gradient $\nabla$ and $v$ of the
# gradient's square. Both start at 0, which $1 - \beta^t$ makes up for at update $t$; $\eta$ is the rate:
#
# $$
# m \leftarrow \beta_1 m + (1 - \beta_1) \nabla, \quad v \leftarrow \beta_2 v + (1 - \beta_2) \nabla^2
# $$
#
# $$
# w \leftarrow w - \eta \, \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}
# $$
#
# So a weight with small gradients moves as far as one with large ones. The paper has $\beta_1 = 0.9$, $\beta_2 = 0.98$
# (the usual 0.999 forgets slower) and $\epsilon = 10^{-9}$, which keeps the fraction finite.


# %%
class Adam:
    """Adam for some weights, which have gradients at each step."""

    def __init__(self, weights, beta1=0.9, beta2=0.98, epsilon=1e-9):
        self.weights, self.t = list(weights), 0
        self.means = [torch.zeros_like(w) for w in self.weights]
        self.squares = [torch.zeros_like(w) for w in self.weights]
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    @torch.no_grad()
    def step(self, rate):
        self.t += 1
        first, second = 1 - self.beta1**self.t, 1 - self.beta2**self.t
        for w, m, v in zip(self.weights, self.means, self.squares):
            m.mul_(self.beta1).add_(w.grad, alpha=1 - self.beta1)
            v.mul_(self.beta2).add_(w.grad**2, alpha=1 - self.beta2)
            root = (v / second).sqrt() + self.epsilon
            w -= rate * (m / first) / root


weight = torch.tensor([1.0, 1.0], requires_grad=True)
adam = Adam([weight])
(weight * torch.tensor([100.0, 0.01])).sum().backward()
adam.step(rate=0.1)
print(weight)

# %% [markdown]
# Two gradients, ten thousand times apart, and the same step. The rate rises for `warmup` updates, 4,000 in the paper,
# and then falls as one over the root of their number (equation 3):
#
# $$
# \text{rate} = d_\text{model}^{-0.5} \cdot \min(\text{step}^{-0.5}, \text{step} \cdot \text{warmup}^{-1.5})
# $$


# %%
def learning_rate(step, D, warmup):
    """The rate of update `step`, counted from 1."""
    return D**-0.5 * min(step**-0.5, step * warmup**-1.5)


steps = range(100, 20001, 100)
lines = {}
for D, warmup in ((1024, 4000), (1024, 2000), (128, 2000)):
    rates = [learning_rate(step, D, warmup) for step in steps]
    lines[f"D {D}, warmup {warmup}"] = (steps, rates)
curves(lines, "update", "learning rate")

# %% [markdown]
# ## An update, and a training
#
# Forward, loss, backward, step. Padding in what is wanted gives no loss; the loss is the mean over all other positions
# of the batch.


# %%
def update(model, adam, batch, rate, smoothing):
    """Change the weights by one batch. Returns the loss."""
    source, given, wanted = batch
    real = wanted != PAD
    model.train()  # with dropout
    model.zero_grad()
    scores = model(source, given)[real]  # (n, C)
    asked = smoothed(wanted[real], scores.shape[1], smoothing)
    loss = cross_entropy(scores, asked) / len(scores)
    loss.backward()
    adam.step(rate)
    return loss.item()


def training(
    model, pairs, updates, tokens, warmup, factor, smoothing=0.1,
    seed=1, first=1,
):  # fmt: skip
    """Train; yields (number of the update, loss) after each.

    The rate is `factor` times that of equation 3; before update
    `first` it is already the rate of that update.
    """
    torch.manual_seed(seed)  # of dropout
    adam, step = Adam(model.parameters()), 0
    for epoch in itertools.count():
        for rows in token_batches(pairs, tokens, seed, epoch):
            step += 1
            rate = learning_rate(max(step, first), model.D, warmup)
            batch = make_batch([pairs[row] for row in rows])
            loss = update(model, adam, batch, factor * rate, smoothing)
            yield step, loss
            if step == updates:
                return


# %% [markdown]
# `backward` adds to `.grad`. So a batch that is too large can be cut: on one device part after part, then one step
# (*accumulation*); on several devices a part each, after which `torch.distributed.all_reduce` adds up the gradients.
# Divide by the number of positions of the whole batch, not of the part.


# %%
def gradients(model, batches):
    """Those of the mean loss over all positions of the batches."""
    model.zero_grad()
    count = sum((wanted != PAD).sum() for _, _, wanted in batches)
    for source, given, wanted in batches:
        real = wanted != PAD
        scores = model(source, given)[real]
        asked = smoothed(wanted[real], scores.shape[1])
        (cross_entropy(scores, asked) / count).backward()
    return [weight.grad.clone() for weight in model.parameters()]


torch.manual_seed(1)
small = Transformer(C=7, D=8, F=16, H=2, N=2, dropout=0.0)
some = [([4] * n, [5] * n) for n in (2, 3, 5, 8)]
whole = gradients(small, [make_batch(some)])
parts = gradients(small, [make_batch(some[:3]), make_batch(some[3:])])
gap = max((a - b).abs().max() for a, b in zip(whole, parts))
print(f"largest difference {gap:.0e}")

# %% [markdown]
# Training and machine (section 5.2): 0.4 seconds an update for base models (100,000 updates, 12 hours), 1.0 for big
# ones (300,000, 3.5 days), on one machine with eight P100 graphics processors, on 4.5 million sentence pairs of
# English-German and 36 million of English-French.
#
# ## First task: copy ten numbers
#
# Give back ten random numbers, here the ids 4 to 13. It needs no grammar, but attention to the right place. `loss` is
# of one batch; it cannot reach 0, because label smoothing asks for a doubt of 0.1, which costs at least 0.57 nats here.


# %%
def copy_pairs(count, seed=1):
    chance, numbers = random.Random(seed), range(4, 14)
    lines = [chance.choices(numbers, k=10) for _ in range(count)]
    return [(line, line) for line in lines]


question = list(range(4, 14))
torch.manual_seed(1)
copier = Transformer(C=14, D=32, F=64, H=4, N=1, dropout=0.0)
losses_of_copying = []
for step, loss in training(
    copier,
    copy_pairs(4000),
    300,
    tokens=704,  # 64 pairs of 11
    warmup=100,
    factor=1,
):
    losses_of_copying.append(loss)
    if step % 50 == 0:
        answer = greedy(copier, [question], limit=12)[0]
        print(f"{step:4} {loss:.3f}", *answer)

# %%
lines = {"loss": (range(1, 301), losses_of_copying)}
lines["least"] = (1, 300), (0.5735, 0.5735)
curves(lines, "update", "smoothed loss, nats")

# %% [markdown]
# The weights of its attention were kept. To copy, the decoder must look at the place that it writes:

# %%
copier.eval()
source, given, _ = make_batch([(question, question)])
copier(source, given)
looked = copier.decoder[0].cross.weights[0]  # (H, T, S)
names = [*map(str, question), "/s"]
heatmap({f"Head {h + 1}": looked[h] for h in range(4)}, names)

# %% [markdown]
# ## Beam search (section 6.1)
#
# Greedy search never takes back a choice. Beam search keeps the best few beginnings, its *beams*. Each step continues
# every beam by every subword. Sort all continuations. One that ends in `</s>` and is among the first `beam_size` is
# finished; the first `beam_size` that do not end are the next beams. (Each beam ends only once, so the first
# `2 * beam_size` hold them all.) $\log P$, the sum of the logarithms of all probabilities, is lower for a longer text,
# so the finished ones are ranked by $\log P / ((5 + T) / 6)^\alpha$, T their length with `</s>` (Wu et al. 2016). The
# paper has 4 beams, $\alpha = 0.6$, and stops at 50 subwords more than the source has.
#
# ![Two steps of a search with two beams](images/walkthrough/beam.svg)
#
# *Two steps with two beams: filled beginnings are kept. Greedy search would take "the" and end with 0.20; "a dog" has
# 0.36.*


# %%
def beam_search(next_logs, limit, beam_size=4, alpha=0.6):
    """The best lists of ids after <s>, as (score, log P, ids).

    next_logs: k lists of ids to log-probabilities (k, C).
    """
    beams, finished = [(0.0, [BOS])], []
    for _ in range(limit):
        sums = torch.tensor([[total] for total, _ in beams])
        totals = next_logs([ids for _, ids in beams]) + sums  # (k, C)
        best = totals.flatten().sort(descending=True, stable=True)
        top = best.indices[: 2 * beam_size].tolist()
        places = [divmod(place, totals.shape[1]) for place in top]
        grown = [
            (totals[beam, next_].item(), [*beams[beam][1], next_])
            for beam, next_ in places
        ]
        finished += [c for c in grown[:beam_size] if c[1][-1] == EOS]
        beams = [c for c in grown if c[1][-1] != EOS][:beam_size]
        if len(finished) >= beam_size:
            break
    return (ranked(finished, alpha) + ranked(beams, alpha))[:beam_size]


def ranked(beams, alpha):
    """Sums of logarithms with ids to (score, sum, ids), best first."""
    scored = []
    for log, ids in beams:
        score = log / ((4 + len(ids)) / 6) ** alpha  # ids has <s>, too
        scored.append((score, log, [i for i in ids[1:] if i != EOS]))
    return sorted(scored, key=lambda beam: -beam[0])


CHOICES = ["<pad>", "<unk>", "<s>", "</s>", "the", "a", "dog", "cat"]
NEXT = {
    "<s>": {"the": 0.5, "a": 0.4, "cat": 0.1},
    "the": {"dog": 0.4, "cat": 0.35, "a": 0.25},
    "a": {"dog": 0.9, "cat": 0.1},
    "dog": {"</s>": 1.0},
    "cat": {"</s>": 1.0},
}


def table_logs(beams):
    """The logarithms of NEXT for the last word of each beam."""
    rows = [NEXT[CHOICES[ids[-1]]] for ids in beams]
    shares = [[row.get(word, 0.0) for word in CHOICES] for row in rows]
    return torch.tensor(shares).log()


for _, log, ids in beam_search(table_logs, 5, 2, alpha=0):
    print(f"P {math.exp(log):.2f}", *(CHOICES[i] for i in ids))

# %% [markdown]
# The search asks only for logarithms of what comes next, so a table will do, and so will a model:


# %%
def model_logs(model, source):
    """The function that beam_search asks, for a source."""
    model.eval()
    memory, mask = model.encode(torch.tensor([[*source, EOS]]))

    @torch.no_grad()
    def next_logs(beams):
        ids = torch.tensor(beams)  # (k, t)
        many = memory.expand(len(ids), -1, -1)
        scores = model.decode(ids, many, mask)[:, -1]
        scores[:, [PAD, BOS]] = -math.inf
        return scores.log_softmax(-1)

    return next_logs


for score, log, ids in beam_search(model_logs(copier, question), 60, 3):
    print(f"score {score:.2f}, log P {log:.2f}:", *ids)

# %% [markdown]
# ## Averaging (section 6.1)
#
# Near the end of a training the weights still jump around. The paper's models are the mean of the last 5 checkpoints,
# of the last 20 for the big ones: a *checkpoint* is a copy of all weights, saved every ten minutes. Part 4 measures
# what it gains.


# %%
def mean_weights(checkpoints):
    """A list of {name: tensor} to their mean."""
    count = len(checkpoints)
    return {
        name: sum(weights[name] for weights in checkpoints) / count
        for name in checkpoints[0]
    }


print(mean_weights([{"b": torch.ones(2)}, {"b": torch.zeros(2)}]))

# %% [markdown]
# ---
#
# # Part 3: a translator
#
# ## A little German
#
# The paper's text is WMT 2014: 4.5 million pairs for English-German, 37,000 subwords; 36 million for English-French,
# 32,000. To train while you read we need less, but text for which a dictionary is not enough. In German
#
# - some verbs split: *aufessen* (eat up) is *Er isst den Kuchen auf*; without the last word, *isst* means eats;
# - the verb ends a clause: *dass der Mann den Kuchen aufisst* (that the man eats up the cake), and so do participles
#   and infinitives;
# - nouns are joined without a space: *Apfelkuchen* is apple cake; articles and adjectives change with gender and case.
#
# This grammar makes such sentences with their English. In its patterns *auf essen* stands for any verb of the list, in
# which `-` marks a verb that does not split.

# %%
PEOPLE = """der Mann man, die Frau woman, das Kind child,
der Lehrer teacher, die Köchin cook, das Mädchen girl"""
FRUITS = "Apfel apple, Nuss nut, Kirsch cherry, Pilz mushroom"
DISHES = "der kuchen cake, die suppe soup, das brot bread"
LOOKS = "alt old, neu new, groß big, klein small"
VERBS = """- kaufen kauft gekauft buy buys bought,
- essen isst gegessen eat eats eaten,
auf essen isst gegessen eat-up eats-up eaten-up,
- bringen bringt gebracht bring brings brought,
mit bringen bringt gebracht bring-along brings-along brought-along,
weg werfen wirft geworfen throw-away throws-away thrown-away"""


def pick(chance, text):
    """The words of one entry of a list."""
    return chance.choice(text.split(",")).split()


def phrase(chance, noun, accusative=False):
    """Article, maybe an adjective, noun: (German, English)."""
    article, german, english = noun
    masculine = accusative and article == "der"
    article, ending = ("den", "en") if masculine else (article, "e")
    if chance.random() < 0.5:
        look = pick(chance, LOOKS)
        german = f"{look[0]}{ending} {german}"
        english = f"{look[1]} {english}"
    return f"{article} {german}", f"the {english}"


def sentence(chance):
    """A random sentence and its translation."""
    fruit, dish = pick(chance, FRUITS), pick(chance, DISHES)
    noun = dish[0], fruit[0] + dish[1], f"{fruit[1]} {dish[2]}"
    wer, who = phrase(chance, pick(chance, PEOPLE))
    was, what = phrase(chance, noun, accusative=True)
    sie, she = phrase(chance, pick(chance, PEOPLE))
    auf, essen, isst, gegessen, eat, eats, eaten = (
        word.strip("-").replace("-", " ")
        for word in pick(chance, VERBS)
    )
    wants, has = "wants", "has"
    if chance.random() < 0.3:
        was, eats = f"{was} nicht", f"does not {eat}"
        wants, has = "does not want", "has not"
    patterns = f"""{wer} {isst} {was} {auf}
{who} {eats} {what}
heute {isst} {wer} {was} {auf}
today {who} {eats} {what}
{wer} hat {was} {auf}{gegessen}
{who} {has} {eaten} {what}
{wer} will {was} {auf}{essen}
{who} {wants} to {eat} {what}
{sie} sagt, dass {wer} {was} {auf}{isst}
{she} says that {who} {eats} {what}""".split("\n")
    i = 2 * chance.choice(range(5))
    both = patterns[i].strip(), patterns[i + 1]
    return tuple(f"{line[0].upper()}{line[1:]}." for line in both)


chance = random.Random(1)
text = list(dict.fromkeys(sentence(chance) for _ in range(6000)))
unseen = [pair for pair in text if "Nussbrot" in pair[0]][:100]
seen = [pair for pair in text if "Nussbrot" not in pair[0]]
valid_text, train_text = seen[:100], seen[100:]
print(f"{len(train_text)} pairs to learn from, 100 to test")
print(f"and {len(unseen)} with a word that training never shows")
for german, english in train_text[:5]:
    print("\n" + german + "\n" + english)

# %% [markdown]
# Your own text: two files, a sentence a line. Put the result of this function in the place of `train_text`.
# `learn_merges` below counts anew for each merge, so thousands of merges need the package.


# %%
def read_pairs(source, target):
    """The pairs of two files with a sentence a line."""
    texts = [Path(p).read_bytes().decode() for p in (source, target)]
    lines = [text.removesuffix("\n").split("\n") for text in texts]
    return list(zip(*lines, strict=True))


# %% [markdown]
# ## Subwords (section 5.1)
#
# Words would need a huge table, and a new word would have no row. Letters make sequences long. Byte-pair encoding lies
# between (Sennrich et al. 2016): start from letters, join the pair of neighbours that is most frequent in the training
# text, and repeat. A line is first split into words and signs, both called words below; `▁` marks a word after a space
# (so joining gives the line again), `</w>` the end of a word.


# %%
def words_of(line):
    """Words and signs of a line, with ▁ where a space was."""
    runs = (re.findall(r"\w+|[^\w\s]", run) for run in line.split())
    return [
        word for first, *rest in runs for word in ("▁" + first, *rest)
    ]


def letters(word):
    return [*word[:-1], word[-1] + "</w>"]


def join(parts, pair):
    """Join each such pair of neighbours, from left to right."""
    for i in range(len(parts)):
        if tuple(parts[i : i + 2]) == pair:
            parts[i : i + 2] = ["".join(pair)]


def learn_merges(counts, number):
    """Words with their counts to merges, most frequent first."""
    pieces, merges = {word: letters(word) for word in counts}, []
    while len(merges) < number:
        pairs = Counter()
        for word, parts in pieces.items():
            for pair in itertools.pairwise(parts):
                pairs[pair] += counts[word]
        if max(pairs.values(), default=0) < 2:
            break
        merges.append(max(pairs, key=lambda pair: (pairs[pair], pair)))
        for parts in pieces.values():
            join(parts, merges[-1])
    return merges


def cut(word, merges):
    """A word, known or not, in subwords."""
    parts = letters(word)
    for pair in merges:
        join(parts, pair)
    return parts


lines = [line for pair in train_text for line in pair]
counts = Counter(word for line in lines for word in words_of(line))
merges = learn_merges(counts, 200)
print("first:", *("".join(pair) for pair in merges[:8]))
for word in ("Apfelkuchen", "aufgegessen", "Nussbrot", "Birnenbrot"):
    print(word, "=", *cut("▁" + word, merges))

# %% [markdown]
# `Nussbrot` (nut bread) was held back, and `Birnenbrot` (pear bread) is outside of the grammar: both can be written.
# Subwords of the training text and its single letters make the vocabulary; what has no id becomes `<unk>`.


# %%
@functools.cache  # a word that comes again is not cut again
def pieces_of(word):
    return cut(word, merges)


parts = {part for word in counts for part in pieces_of(word)}
parts |= {part for word in counts for part in letters(word)}
subwords = ["<pad>", "<unk>", "<s>", "</s>", *sorted(parts)]
number = {subword: i for i, subword in enumerate(subwords)}


def ids_of(line):
    pieces = [p for word in words_of(line) for p in pieces_of(word)]
    return [number.get(piece, UNK) for piece in pieces]


def text_of(ids):
    joined = "".join(subwords[i] for i in ids).replace("</w>", "")
    return joined.replace("▁", " ").strip()


train, valid, new = (
    [(ids_of(german), ids_of(english)) for german, english in pairs]
    for pairs in (train_text, valid_text, unseen)
)
print(len(subwords), "subwords;", train_text[0][0], "=", *train[0][0])
print(all(text_of(ids_of(line)) == line for p in text for line in p))

# %% [markdown]
# ## It learns
#
# A model of the paper's kind, 64 wide instead of 512. *Right* is the share of unseen sentences that it translates
# exactly. The three sentences need a split verb, a verb at the end, and a word that training never shows; none of them
# stands in the training text.

# %%
QUESTIONS = [
    "Heute isst der Lehrer den Apfelkuchen auf.",
    "Der Lehrer sagt, dass die alte Köchin den Pilzkuchen mitbringt.",
    "Der Mann will das große Nussbrot wegwerfen.",
]


def right(model, pairs):
    """The share of pairs whose greedy translation is exact."""
    answers = greedy(model, [source for source, _ in pairs], 40)
    same = [a == target for a, (_, target) in zip(answers, pairs)]
    return sum(same) / len(same)


def report(model, step):
    known, fresh = right(model, valid), right(model, new)
    print(f"After {step} updates: {known:.0%} right,", end=" ")
    print(f"{fresh:.0%} of those with the new word")
    for ids in greedy(model, [ids_of(q) for q in QUESTIONS], 40):
        print("   ", text_of(ids)[:76])


SIZES = {"D": 64, "F": 128, "H": 4, "N": 2}
torch.manual_seed(1)
translator = Transformer(len(subwords), **SIZES)

# %% tags=["long"]
report(translator, 0)

# %% tags=["long"]
start, points, checkpoints = time.process_time(), [], []
for step, loss in training(
    translator, train, 400, tokens=1024, warmup=200, factor=0.5
):
    points.append(loss)
    if step in (100, 200, 400):
        report(translator, step)
    if step > 300 and step % 20 == 0:
        state = translator.state_dict().items()
        checkpoints.append({name: w.clone() for name, w in state})
minutes = (time.process_time() - start) / 60
print(f"{minutes:.1f} minutes of one processor core")

# %% tags=["long"]
lines = {"loss of a batch": (range(1, len(points) + 1), points)}
curves(lines, "update", "smoothed loss, nats")

# %% [markdown]
# The first sentence with the paper's four beams, and with three; then the mean of the last five checkpoints:

# %% tags=["long"]
source = ids_of(QUESTIONS[0])
logs = model_logs(translator, source)
for beams in (4, 3):
    print(beams, "beams")
    for score, log, ids in beam_search(logs, len(source) + 50, beams):
        print(f"score {score:.2f}, log P {log:.2f}:", text_of(ids))
averaged = Transformer(len(subwords), **SIZES)
averaged.load_state_dict(mean_weights(checkpoints))
print(f"last weights {right(translator, valid):.1%} right,", end=" ")
print(f"their mean {right(averaged, valid):.1%}")

# %% [markdown]
# A model that is sure leaves to the other beams what it holds unlikely, and some of that is short. The search stops when
# as many hypotheses have ended as it has beams: with three, three short ones end before the best has, which is lost.
#
# ## Its attention, everywhere
#
# All layers and heads on the first sentence, in the three places where the model attends. Each row sums to 1. First the
# encoder over itself:

# %% tags=["long"]
translator.eval()
(target,) = greedy(translator, [source], 40)
read, asked, _ = make_batch([(source, target)])
translator(read, asked)


def names_of(ids):
    names = [subwords[i].replace("</w>", "") for i in ids]
    return [name.strip("▁<>") for name in names]


def maps(kind, layers):
    """{title: weights} of each layer and head."""
    return {
        f"Layer {i}, head {h}": weights
        for i, layer in enumerate(layers, 1)
        for h, weights in enumerate(getattr(layer, kind).weights[0], 1)
    }


asks, reads = names_of(asked[0]), names_of(read[0])
heatmap(maps("attention", translator.encoder), reads)

# %% [markdown]
# The decoder over itself: the upper right is the future, and empty.

# %% tags=["long"]
heatmap(maps("attention", translator.decoder), asks)

# %% [markdown]
# The decoder over the source; a row names what was read last, and predicts what comes next. The row `eats` is about to
# write "up". It needs `auf`, which is cut into `a u f`: three of the eight heads put nearly all of their weight on `a`.
# The row `teacher`, which writes "eats", looks at `isst` in most heads.

# %% tags=["long"]
heatmap(maps("cross", translator.decoder), asks, reads)

# %% [markdown]
# ## The same on real text
#
# Multi30k (Elliott et al. 2016) has 29,000 captions of photographs. The package of this project, which computes what
# this page computes but faster (see the appendix), was trained on them once, at commit 7a1e918, on two cores without a
# graphics processor. This repeats it:
#
#     cp recipes/multi30k.yaml params.yaml
#     dvc exp run -S back_translation_steps=0 -S max_steps=1300 -S average=valid -S precision=float32
#
# That is the recipe with a quarter of its updates, without its back-translation (training text whose source a model has
# translated from the target) and in float32 instead of bfloat16. It is pre-norm, 128 wide, with 4 layers and Muon for
# the matrices, an optimiser that makes the step of a matrix orthogonal (Jordan et al. 2024). The whole recipe reaches
# 42 to 43 BLEU ([results](results.md#multi30k)). **BLEU**, from 0 to 100, counts the runs of one to four words that
# translations share with human ones, and is lowered when the translations are too short in all.


# %%
def stored(name):
    """What a file beside this notebook holds, or nothing."""
    for folder in (Path("docs"), Path()):
        if (folder / name).exists():
            return json.loads((folder / name).read_text("utf-8"))
    print(name, "is not here; it is in the folder docs of the project.")
    return None


real = stored("multi30k.json")
if real:
    last, mean = real["averaging"]["last"], real["averaging"]["mean"]
    print("BLEU on valid with one beam:")
    print(f"last checkpoint {last['bleu']:.1f}", end=", ")
    print(f"mean of the last nine {mean['bleu']:.1f}")
    print("With the mean of the last two:")
    print("alpha  ", *(f"{a:5}" for a in real["search"]["penalties"]))
    for beams, row in real["search"]["bleu"]:
        print(f"beams {beams}", *(f"{value:5.1f}" for value in row))
    print("BLEU on the test set of 2016, 4 beams, alpha 1.5:", end=" ")
    print(f"{real['scores']['bleu']:.1f}")
    for word, pieces in real["unseen"]:
        print(word, "=", *pieces)
    for german, english, answer in real["translations"]:
        print("\n" + "\n".join((german, english, "> " + answer)))

# %% [markdown]
# The loss of this short training still falls, so the mean of nine checkpoints is worse than the last; at the end of the
# full recipe it gains 0.4 BLEU. The model above has the mean of the last two, which were best on valid. Eight beams
# lose 0.3 against greedy search; with $\alpha = 1.5$ they gain 1.5, and four beams gain nearly as much. 1.5 is the edge
# of the grid, so the best value may be larger. After `>` is the model's translation of sentences that we wrote; the
# words on top are not in its training text.

# %%
if real:
    steps, losses = zip(*real["curve"])
    chart = curves({"valid": (steps, losses)}, "update", "loss, nats")
chart if real else None

# %%
if real:
    shown = real["attention"]
    asks = ["s", *(w.strip("▁<>") for w in shown["target"][:-1])]
    reads = [w.strip("▁<>") for w in shown["source"]]
    last = enumerate(shown["cross"][-1], 1)
    heads = {f"Layer 4, head {h}": weights for h, weights in last}
    chart = heatmap(heads, asks, reads)
chart if real else None

# %% [markdown]
# The last layer of the decoder looks at the source, in four heads.
#
# ## The paper's tables
#
# **Table 1** compares layers by what they cost, for S positions of width D, kernels of k positions and neighbourhoods
# of r. Self-attention costs less than recurrence while a sentence has fewer positions than a vector has entries, S < D.
#
# | layer | operations | steps that must wait for each other | longest path between two positions |
# | --- | --- | --- | --- |
# | self-attention | $O(S^2 D)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(S D^2)$ | $O(S)$ | $O(S)$ |
# | convolutional | $O(k S D^2)$ | $O(1)$ | $O(\log_k S)$ |
# | self-attention, restricted | $O(r S D)$ | $O(1)$ | $O(S / r)$ |
#
# **Table 2** (four of its rows), BLEU on newstest2014. All figures are the paper's; 9.6e18 is $9.6 \cdot 10^{18}$.
# Nobody has trained the two Transformers with this project yet; `recipes/wmt14_base.yaml` and `recipes/wmt14_big.yaml`
# are ready.
#
# | model | EN-DE | EN-FR | FLOPs, EN-DE | FLOPs, EN-FR |
# | --- | --- | --- | --- | --- |
# | ConvS2S (Gehring et al. 2017) | 25.16 | 40.46 | 9.6e18 | 1.5e20 |
# | GNMT + RL (Wu et al. 2016) | 24.6 | 39.92 | 2.3e19 | 1.4e20 |
# | Transformer, base | 27.3 | 38.1 | 3.3e18 | |
# | Transformer, big | 28.4 | 41.8 | 2.3e19 | |
#
# **Table 3** varies one thing at a time. The paper's numbers are BLEU on newstest2013, EN-DE, six layers, 100,000
# updates. Ours are BLEU on Multi30k's validation set, DE-EN: three layers, D = 128, pre-norm, Muon, 10,000 captions,
# 600 updates, two seeds ([`recipes/table3.yaml`](../recipes/table3.yaml); p-values in
# [results](results.md#a-small-table-3)). Only the direction can be compared.
#
# | row | the paper: base 25.8 | here: base 23.8 |
# | --- | --- | --- |
# | A: one head | 24.9 (-0.9) | 22.6 (-1.2) |
# | B: queries and keys a quarter as wide | 25.1 (-0.7) | 20.7 (-3.1) |
# | C: fewer layers | 23.7 (-2.1), 2 for 6 | 24.2 (+0.4), 1 for 3 |
# | C: half the width | 24.5 (-1.3) | 20.8 (-3.1) |
# | D: no dropout | 24.6 (-1.2) | 26.0 (+2.2) |
# | D: no label smoothing | 25.3 (-0.5) | 23.4 (-0.4) |
# | E: learned positions | 25.7 (-0.1) | 22.6 (-1.2) |
# | big | 26.4 (+0.6) | not measured |
#
# Without dropout this short training is better, unlike the paper's: it saw each caption about three times, too few to
# learn them by heart. For one layer instead of three, and for no label smoothing, the differences are too small to
# trust with two seeds.

# %% [markdown]
# ---
#
# # Part 4: why, measured
#
# Take one piece of the paper out at a time, on a task where it matters, with three seeds (of the weights, the batches
# and dropout). `loss` is $-\log p$ of the right subword on unseen pairs, in nats (without smoothing), and `%` the share
# of right subwords in greedy answers: of each the mean of three seeds, the lowest and the highest. A change is in a few
# lines of Python, which replace a part of a model; a `forward_hook` replaces what a part returns (y).


# %%
def no_positions(model):
    model.embedding.positions = lambda T, D: torch.zeros(T, D)


class Learned(nn.Module):
    """A learned vector for each position, instead of waves."""

    def __init__(self, D, size):
        super().__init__()
        self.table = nn.Parameter(size * torch.randn(64, D))

    def forward(self, T, D):
        return self.table[:T]


def learned(model, size=0.71):  # as large as the waves
    model.embedding.positions = Learned(model.D, size)


def learned_small(model):
    learned(model, size=0.18)


def small_waves(model):
    model.embedding.positions = lambda T, D: sinusoids(T, D) / 4


def no_cross(model):  # what is read from the memory becomes 0
    for layer in model.decoder:
        layer.cross.output.register_forward_hook(lambda m, i, y: 0 * y)


def no_mask(model):
    model.mask = lambda T: torch.ones(T, T, dtype=torch.bool)


def no_root(model):  # queries times the root undo the division
    for part in model.modules():
        if isinstance(part, MultiHead):
            root = math.sqrt(model.D / part.H)
            part.query.register_forward_hook(lambda m, i, y: root * y)


class Bare(nn.Module):
    """A sub-layer without its sum, or without its norm."""

    def __init__(self, D, summed):
        super().__init__()
        self.norm = nn.Identity() if summed else LayerNorm(D)
        self.summed = summed

    def forward(self, sublayer, x):
        return self.norm(sublayer(x) + (x if self.summed else 0))


def no_sum(model, summed=False):
    for layer in [*model.encoder, *model.decoder]:
        bare = [Bare(model.D, summed) for _ in layer.residuals]
        layer.residuals = nn.ModuleList(bare)


def no_norm(model):
    no_sum(model, summed=True)


# %% [markdown]
# The tasks: copy ten numbers, give them back in reverse order, and translate, with all text of part 3 or with 150 pairs
# of it.


# %%
def task(name):
    """The pairs of a task: to train with, and to judge by."""
    if "German" in name:
        return (train[:150] if "150" in name else train), valid
    chance, turn = random.Random(2), -1 if name == "reverse" else 1
    lines = [
        [chance.randint(4, 13) for _ in range(10)] for _ in range(4100)
    ]
    pairs = [(line, line[::turn]) for line in lines]
    return pairs[:4000], pairs[4000:]


def judged(model, pairs):
    """Loss, and share of right subwords in greedy answers."""
    answers = greedy(model, [source for source, _ in pairs], 30)
    same = [
        a == b
        for answer, (_, target) in zip(answers, pairs)
        for a, b in zip([*answer, *[PAD] * 30], target)
    ]
    source, given, wanted = make_batch(pairs)
    real = wanted != PAD
    with torch.no_grad():
        scores = model(source, given)[real]
    asked = smoothed(wanted[real], scores.shape[1], 0.0)
    loss = cross_entropy(scores, asked).item() / len(scores)
    return loss, sum(same) / len(same)


def experiment(seed=1, name="copy", change=None, sizes=(), **options):
    """Train a model. Returns its loss and right answers, and those
    of the mean of its last five checkpoints, ten updates apart."""
    pairs, unseen = task(name)
    C, D, tokens = (14, 32, 704)
    if "German" in name:
        C, D, tokens = len(subwords), 64, 1024
    usual = {"D": D, "F": 2 * D, "H": 4, "N": 1, "dropout": 0.0}
    knobs = {"updates": 250, "warmup": 100, "factor": 1.0}
    knobs |= {"smoothing": 0.0, "tokens": tokens, "seed": seed}
    knobs |= options
    torch.manual_seed(seed)
    model = Transformer(C, **usual | dict(sizes))
    if change:
        change(model)
    kept = []
    for step, _ in training(model, pairs, **knobs):
        if step > knobs["updates"] - 50 and step % 10 == 0:
            state = model.state_dict().items()
            kept.append({key: w.clone() for key, w in state})
    last = judged(model, unseen)
    model.load_state_dict(mean_weights(kept))
    return *last, *judged(model, unseen)


REVERSE = {"name": "reverse"}
SLOW = {"factor": 0.1, "updates": 500}
ROOT = {"sizes": {"H": 1, "D": 64}}
SOME = {"name": "German", "updates": 150}
DEEP = {"sizes": {"N": 6}, "updates": 200, "factor": 0.2}
FEW = {"name": "150 German", "updates": 200}
DROP, SMOOTH = {"sizes": {"dropout": 0.1}}, {"smoothing": 0.1}
# a name, and what changes: from copy, 250 updates, 1 layer, 4 heads
EXPERIMENTS = {
    "no cross-attention": {"change": no_cross},
    "no positions": {"change": no_positions},
    "with both": {},
    "no positions, reverse": REVERSE | {"change": no_positions},
    "with both, reverse": REVERSE,
    "no mask": {"change": no_mask},
    "learned": {"change": learned},
    "waves, small rate": SLOW,
    "learned, small rate": SLOW | {"change": learned},
    "small waves": SLOW | {"change": small_waves},
    "learned, small": SLOW | {"change": learned_small},
    "no root": ROOT | {"change": no_root},
    "root": ROOT,
    "one head": SOME | {"sizes": {"H": 1}},
    "four heads": SOME,
    "no sum": DEEP | {"change": no_sum},
    "no norm": DEEP | {"change": no_norm},
    "post": DEEP,
    "post, 400 updates": DEEP | {"updates": 400},
    "pre": DEEP | {"sizes": {"N": 6, "pre": True}},
    "no warm-up": {"sizes": {"N": 2}, "first": 100},
    "warm-up": {"sizes": {"N": 2}},
    "neither": FEW,
    "dropout": FEW | DROP,
    "smoothing": FEW | SMOOTH,
    "dropout and smoothing": FEW | DROP | SMOOTH,
    "480 updates": SOME | DROP | SMOOTH | {"updates": 480},
}


def measure(names=tuple(EXPERIMENTS)):
    """Experiments with three seeds: the results of each by name."""
    start, results = time.process_time(), {}
    for name in names:
        options = EXPERIMENTS[name]
        results[name] = [experiment(s, **options) for s in (1, 2, 3)]
    minutes = (time.process_time() - start) / 60
    return results | {"minutes": round(minutes, 1)}


# %% [markdown]
# `python -m pipeline walkthrough --measure` stored what `measure()` returns; in a notebook, `measured = measure()` does
# it anew.

# %%
measured = stored("walkthrough.json")


def table(*names):
    """Print loss and right answers of experiments, with ranges."""
    if measured is None:
        return
    print(" " * 21 + "  loss   min   max   % min max")
    for name in names:
        losses, rights, *_ = zip(*measured[name])
        line = name.ljust(21)
        for loss in (sum(losses) / 3, min(losses), max(losses)):
            line += f"{loss:6.3f}" if loss < 99 else f"{loss:6.0f}"
        for share in (sum(rights) / 3, min(rights), max(rights)):
            line += f"{100 * share:4.0f}"
        print(line)


if measured:
    print(measured["minutes"], "minutes of one core for all of it")
table(
    "no cross-attention",
    "no positions",
    "with both",
    "no positions, reverse",
    "with both, reverse",
    "no mask",
)

# %% [markdown]
# Chance is 10% right. **Cross-attention.** Without it the decoder never sees the source: a blind guess of ten numbers,
# and of `</s>` in place eleven, which is certain, has a loss of $\frac{10}{11} \log 10 = 2.09$. **Positions.** With
# attention but without positions, the model knows which numbers occur, not where. Both together solve reverse as well
# as copy: to attention no place is far. (Training is not smooth: one of the three copies was just in a jump, with a
# loss of 0.39; the mean of its last checkpoints has 0.004.) **The mask.** Without it the loss is nearly 0, since the
# answer stands in what the decoder reads, and greedy search, where it does not, fails.
#
# **Waves or learned vectors.** The paper found no difference (25.8 and 25.7 BLEU, table 3, row E); on Multi30k, in 600
# updates, learned vectors lost 1.2 BLEU. Here are both at the usual rate, at a tenth of it with 500 updates (small
# rate), and so with a quarter of their size (small):

# %%
table(
    "with both",
    "learned",
    "waves, small rate",
    "learned, small rate",
    "small waves",
    "learned, small",
)

# %% [markdown]
# Beside embeddings, whose entries are about 1, the waves have a size of 0.71 (root mean square). Learned vectors that
# start as large are as good at the usual rate and better at the small one, with each seed. What starts at a quarter of
# that, waves or learned, learns slowly. In the Multi30k table learned vectors start at $1 / \sqrt{128} = 0.09$; the 1.2
# BLEU may come from that, which nobody has measured.
#
# **The root**, on copy with one head 64 wide, and **heads**, in 150 updates of the translation. In the paper's row A
# one head costs 0.9 BLEU.

# %%
table("no root", "root", "one head", "four heads")

# %% [markdown]
# Without the root, scores grow with the width and softmax gives one place nearly all weight. Its gradient is then
# nearly zero, so attention hardly changes: hardly more than the length is learned. Four heads have a lower loss than
# one with each seed; of the right subwords the best of one head (70%) passes the worst of four (65%), so there the
# ranges overlap.
#
# **Residual sum and norm.** Copy with six layers in the encoder and six in the decoder, 200 updates at a fifth of the
# usual rate. Without the sum, or without the norm; then with both, in the paper's order (post), also for twice as long,
# and with the norm before the sub-layer (pre):

# %%
table("no sum", "no norm", "post", "post, 400 updates", "pre")

# %% [markdown]
# Without the sum the loss stays above the 2.09 of a blind guess, though two numbers in ten are right; without the norm,
# vectors grow from layer to layer and the loss explodes. In the paper's order the model knows after 200 updates which
# numbers occur, and after 400 it begins to place them; with the norm before the sub-layer it has placed most of them
# after 200. The paper gave its order a warm-up of 4,000 and 100,000 updates; pre needs less of both, and most models
# have it today (Xiong et al. 2020).
#
# **Warm-up.** Two layers, post; without warm-up the first hundred updates have the highest rate, and then both fall
# alike.

# %%
table("no warm-up", "warm-up")

# %% [markdown]
# Adam's first steps are as long as the rate, whatever the gradient, and go in the direction of a single batch. At the
# full rate they spoil the weights so that 250 updates do not mend it: no seed gets below the blind guess of 2.09.
#
# **Dropout and label smoothing** are for text that is seen often: 150 pairs of the translation, each 67 times. In the
# paper's row D, no dropout costs 1.2 BLEU, no smoothing 0.5.

# %%
table("neither", "dropout", "smoothing", "dropout and smoothing")

# %% [markdown]
# Dropout halves the loss on unseen pairs, and each of its seeds has more right subwords than each without it. Smoothing
# does what the paper says: the loss, which is the logarithm of perplexity, gets worse in each seed, and more subwords
# are right on average (one seed is within the range of "neither"). Both together have the most right subwords; the
# lowest loss is dropout's alone. The table of Multi30k above had no use for dropout: each caption was seen about three
# times, here each pair 67 times.
#
# **The mean of checkpoints.** The translation after 480 updates, three seeds: the last weights, and the mean of five
# checkpoints, ten updates apart:

# %%
for numbers in (measured or {}).get("480 updates", []):
    print("last {:.3f} {:.1%}   mean {:.3f} {:.1%}".format(*numbers))

# %% [markdown]
# The mean has the lower loss with 3 of 3 seeds. Nearly all subwords are right before and after: two seeds gain a
# little, one loses a little.
#
# ---
#
# # Part 5: from here to a language model
#
# Take the decoder, drop its attention to a source, keep the mask: what remains predicts the next subword of any text.
# That is a layer of the encoder under the decoder's mask, and ten lines:


# %%
class LanguageModel(nn.Module):
    """Ids (B, T) to scores of what comes next (B, T, C)."""

    def __init__(self, C, D, F, H, N, dropout=0.1):
        super().__init__()
        self.D, self.embedding = D, Embedding(C, D, dropout)
        self.layers = several(N, EncoderLayer, D, F, H, dropout)

    def forward(self, nothing, ids):
        x, mask = self.embedding(ids), causal_mask(ids.shape[1])
        for layer in self.layers:
            x = layer(x, mask)
        return x @ self.embedding.table.T


@torch.no_grad()
def sample(model, limit=40):
    """A random text: each subword drawn by its probability."""
    model.eval()
    ids = [BOS]
    while ids[-1] != EOS and len(ids) <= limit:
        p = softmax(model(None, torch.tensor([ids]))[0, -1])
        ids.append(torch.multinomial(p, 1).item())
    return text_of([i for i in ids if i not in (BOS, EOS)])


torch.manual_seed(1)
speaker = LanguageModel(len(subwords), **SIZES)
print(sample(speaker)[:60])

# %% [markdown]
# It learns the English half of our text, as pairs without a source. Are its sentences copies? We count those that
# training has.

# %% tags=["long"]
english = [([], target) for _, target in train]
for step, loss in training(
    speaker, english, 300, tokens=1024, warmup=200, factor=0.5
):
    if step % 100 == 0:
        print(f"{step} {loss:.2f} {sample(speaker)}")
samples = [sample(speaker) for _ in range(100)]
known = {english for _, english in train_text}
print(*samples[:3], sep="\n")
print(sum(s in known for s in samples), "of 100 stand in the text")

# %% [markdown]
# So 98 are new; some have a wrong piece.
#
# What else has changed in most models since, each a few lines of the classes above:
#
# - the norm before the sub-layer, which part 4 measures (Xiong et al. 2020);
# - RMSNorm: no mean and no shift, only division by the root of the mean square (Zhang and Sennrich 2019);
# - rotary positions: queries and keys are turned by an angle that grows with their position, instead of adding waves
#   (Su et al. 2021);
# - SwiGLU: the inner vector is the product of two linear maps, one of them through $x / (1 + e^{-x})$ (Shazeer 2020);
# - grouped heads: several queries share keys and values, so that the cache of a long text is smaller (Ainslie et al.
#   2023).
#
# ---
#
# # Exercises
#
# **1.** Let the mask show one position of the future: `tril(1)`. What do the loss and the answers of the copy task do?

# %% [markdown] tags=["answer"]
# Each position sees its own answer in the input, so the loss falls; greedy answers have no future to look at.


# %% tags=["answer", "long"]
def peek(model):
    model.mask = lambda T: torch.ones(T, T, dtype=torch.bool).tril(1)


loss, share, *_ = experiment(change=peek)
print(f"loss {loss:.3f}, right {share:.0%}")

# %% [markdown]
# **2.** Ask the trained `copier` for eleven numbers. Why does it fail?

# %% [markdown] tags=["answer"]
# In training, position 11 was always `</s>`, in the source and in what is wanted. Train on lengths from 5 to 15.

# %% tags=["answer", "long"]
print(*greedy(copier, [[*question, 4]], 20)[0])

# %% [markdown]
# **3.** What is the loss of a model that has learned nothing but the length of ten numbers, with $\epsilon_{ls} = 0.1$,
# and of one that does not know the length either?

# %% [markdown] tags=["answer"]
# Smoothing asks for 0.9 of the right one and 0.1 shared by the 12 others (not padding). A model that knows the length
# gives `</s>` 0.9 in the last of eleven places, and shares 0.9 among ten numbers in the others. One that does not gives
# the same to each place: `</s>` in one of eleven. The best answer is the mean of what is wanted, and the loss is then
# its entropy:

# %% tags=["answer"]
rows = smoothed(torch.tensor([*question, EOS]), C=14)
ten, end = rows[:10].mean(0), rows[10]
entropy = torch.special.entr  # -p log p of each entry
known = (10 * entropy(ten).sum() + entropy(end).sum()) / 11
blind = entropy(rows.mean(0)).sum()
print(f"knows the length {known:.3f}, knows nothing {blind:.3f}")

# %% [markdown]
# **4.** `warmup=1`: which rate has the first update for D = 32, and what becomes of the copy task?

# %% [markdown] tags=["answer"]
# By equation 3 the first rate is $1 / \sqrt{32}$, ten times the highest one with a warm-up of 100. Both trainings:

# %% tags=["answer", "long"]
for step, warmup in ((1, 1), (100, 100)):
    rate = learning_rate(step, 32, warmup)
    loss, share, *_ = experiment(warmup=warmup)
    print(f"rate {rate:.3f}, loss {loss:.3f}, right {share:.0%}")

# %% [markdown]
# **5.** Leave out the shift: let the decoder read what is wanted. What does the model learn?

# %% [markdown] tags=["answer"]
# To copy its input: the loss falls at once, and greedy search, which starts from `<s>` alone, says nothing useful, as
# in exercise 1.

# %% tags=["answer", "long"]
torch.manual_seed(1)
lazy = Transformer(C=14, D=32, F=64, H=4, N=1, dropout=0.0)
adam, batch = Adam(lazy.parameters()), make_batch(copy_pairs(64))
for step in range(1, 101):
    same = batch[0], batch[2], batch[2]
    loss = update(lazy, adam, same, learning_rate(step, 32, 100), 0.1)
print(f"{loss:.2f}", *greedy(lazy, [question], 12)[0])

# %% [markdown]
# **6.** Start the table of embeddings with entries of size 1. What is the loss of an untrained model of the base size,
# but with two layers, on a batch, where a blind guess among 1,000 has 6.9?

# %% [markdown] tags=["answer"]
# A score is a sum of D products of entries of size 1, so scores are about $\sqrt{512} = 23$ in size, and softmax is
# sure of the wrong one.

# %% tags=["answer", "long"]
torch.manual_seed(1)
large = Transformer(1000, N=2).eval()
ids = torch.randint(4, 1000, (4, 10))
for factor in (1, math.sqrt(512)):
    with torch.no_grad():
        large.embedding.table *= factor
        scores = large(ids, ids)[:, :-1].flatten(0, 1)
    wanted = smoothed(ids[:, 1:].flatten(), 1000, 0.0)
    print(f"{cross_entropy(scores, wanted) / len(scores):.1f}")

# %% [markdown]
# **7.** Leave out the padding mask. How far do the states of a short sentence move when a longer one is in its batch?

# %% [markdown] tags=["answer"]
# With the mask by rounding alone; without it by about as much as another word would.

# %% tags=["answer"]
short, batch = pad([[4, 5, EOS]]), pad([[4, 5, EOS], [4] * 12])
with torch.no_grad():
    alone = copier.encode(short)[0]
    masked = copier.encode(batch)[0][:1, :3]
    x = copier.embedding(batch)
    open_ = copier.encoder[0](x)[:1, :3]
for states in (masked, open_):
    print(f"{(states - alone).abs().max():.1e}")

# %% [markdown]
# **8.** Train the copy task without label smoothing, and with three times as much. What does the search's $\log P$
# become?

# %% [markdown] tags=["answer"]
# Nothing asks the first to doubt: its probability of the whole answer is nearly 1. The other doubts each of eleven
# subwords.

# %% tags=["answer", "long"]
for smoothing in (0.0, 0.3):
    torch.manual_seed(1)
    other = Transformer(C=14, D=32, F=64, H=4, N=1, dropout=0.0)
    knobs = 300, 704, 100, 1, smoothing
    for _ in training(other, copy_pairs(4000), *knobs):
        pass
    best = beam_search(model_logs(other, question), 60, 3)[0]
    print(f"smoothing {smoothing}: log P {best[1]:.2f}")

# %% [markdown]
# **9.** Translate the third question with 1, 4 and 8 beams. Does the best hypothesis change?

# %% [markdown] tags=["answer"]
# A model that is sure leaves nothing to search for; what changes is how much worse the second one is.

# %% tags=["answer", "long"]
source = ids_of(QUESTIONS[2])
for beams in (1, 4, 8):
    logs = model_logs(translator, source)
    found = beam_search(logs, len(source) + 50, beams)
    print(beams, [f"{log:.2f}" for _, log, _ in found[:2]], end=" ")
    print(text_of(found[0][2]))

# %% [markdown]
# ---
#
# # Appendix: the same, faster
#
# The package computes what this page computes: a test compares each class, each loss and both searches in float64 to
# twelve digits. What it adds:
#
# | what | where | what it saves |
# | --- | --- | --- |
# | keys and values of earlier positions are kept while searching | [`decoding/cached_decoder.py`](../transformer/decoding/cached_decoder.py) | a step computes one position instead of all |
# | one product for queries, keys and values; the memory's are made once | [`model/attention.py`](../transformer/model/attention.py) | calls, and a product for each layer and step |
# | all sentences of a batch are searched at once, ended ones leave | [`decoding/beam_search.py`](../transformer/decoding/beam_search.py) | the loops of `beam_search` above |
# | the gradient of the loss is made in the forward pass, 512 tokens at a time | [`training/chunked_loss.py`](../transformer/training/chunked_loss.py) | the scores of all tokens are never in memory |
# | softmax in place, dropout from 16 random bits, ReLU and dropout in one pass | [`model/cpu.py`](../transformer/model/cpu.py) | copies and random numbers, on processors |
# | an update is cut into parts, which are dealt to devices | [`training/batches.py`](../transformer/training/batches.py) | memory; time on several devices, with the same sums |
# | merges by subword-nmt, which keeps its counts up to date | [`text/bpe.py`](../transformer/text/bpe.py) | counting anew for each merge |
#
# [benchmarks/README.md](../benchmarks/README.md) has what that is in seconds beside other programs: 11.6 times The
# Annotated Transformer's tokens a second for a small model in float32.
#
# **For readers of The Annotated Transformer**: its parts are here under the names `MultiHead` (MultiHeadedAttention),
# `FeedForward`, `Residual` (SublayerConnection), `Embedding` with `sinusoids` (Embeddings, PositionalEncoding),
# `causal_mask` (subsequent_mask), `smoothed` (LabelSmoothing), `learning_rate` (rate), `make_batch` and `token_batches`
# (Batch, and batch_size_fn of the edition of 2018), `training` (run_epoch), `greedy`; beam search and byte pairs, which
# it describes, have code here. Of the paper, English constituency parsing (section 6.3) is left out: another task with
# another corpus.
#
# **References.** [Ainslie et al. 2023](https://arxiv.org/abs/2305.13245), grouped queries ·
# [Ba et al. 2016](https://arxiv.org/abs/1607.06450), layer norm ·
# [Bahdanau et al. 2015](https://arxiv.org/abs/1409.0473), attention ·
# [Elliott et al. 2016](https://arxiv.org/abs/1605.00459), Multi30k ·
# [Gehring et al. 2017](https://arxiv.org/abs/1705.03122), ConvS2S ·
# [Glorot and Bengio 2010](https://proceedings.mlr.press/v9/glorot10a.html) ·
# [Jordan et al. 2024](https://kellerjordan.github.io/posts/muon/), Muon ·
# [Kalchbrenner et al. 2016](https://arxiv.org/abs/1610.10099), ByteNet ·
# [Kingma and Ba 2015](https://arxiv.org/abs/1412.6980), Adam ·
# [Sennrich et al. 2016](https://arxiv.org/abs/1508.07909), byte pairs ·
# [Shazeer 2020](https://arxiv.org/abs/2002.05202), SwiGLU · [Su et al. 2021](https://arxiv.org/abs/2104.09864), rotary
# positions · [Szegedy et al. 2016](https://arxiv.org/abs/1512.00567), label smoothing ·
# [Wu et al. 2016](https://arxiv.org/abs/1609.08144), GNMT · [Xiong et al. 2020](https://arxiv.org/abs/2002.04745), pre
# and post · [Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467), RMSNorm
#
# **On from here**: [params.yaml](../params.yaml) has a knob for each choice of this page; [training.md](training.md),
# [translating.md](translating.md) and [library.md](library.md) use the package.
#
# **What made these outputs** (rounding differs between processors and grows in training: losses of single batches then
# differ by a few percent, and single sentences of part 3; the first 50 updates of the copy task agree to four digits):

# %%
import platform

print("torch", torch.__version__, "numpy", np.__version__)
print("altair", alt.__version__, "Python", platform.python_version())
if Path("/proc/cpuinfo").exists():
    about = Path("/proc/cpuinfo").read_text()
    name = re.search("model name.*: (.*)", about)
    print(name[1] if name else platform.machine())

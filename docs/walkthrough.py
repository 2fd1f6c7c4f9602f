# %% [markdown]
# # The Transformer, line by line
#
# **"Attention Is All You Need" as one program: a model, its training, its search, and a translator that learns while
# you read.** It needs torch, numpy and altair, no graphics processor and no file beside it; all of it runs in a
# minute and a half on one core, and the pictures that it then draws load a library from the network. Colab has the
# three: choose *File, Upload notebook*, and take `walkthrough.ipynb`. On your own machine (the plain torch is three
# gigabytes on Linux, this build 200 megabytes):
#
#     pip install numpy altair notebook
#     pip install torch --index-url https://download.pytorch.org/whl/cpu
#     jupyter notebook walkthrough.ipynb
#
# You need Python, numpy, and what a gradient is; no translation, no torch: what numpy lacks is explained where it is
# used. "The paper" is Vaswani et al. 2017 ([arXiv 1706.03762](https://arxiv.org/abs/1706.03762)). The form follows
# [The Annotated Transformer](https://nlp.seas.harvard.edu/annotated-transformer/), which taught this model to many of
# us: Alexander Rush wrote it in 2018 with help from Vincent Nguyen and Guillaume Klein; Austin Huang, Suraj
# Subramanian, Jonathan Sum, Khalid Almubarak and Stella Biderman renewed it in 2022. Thank you. No sentence is taken
# from it, and no line of code beyond idioms such as `for layer in self.layers:`. Why another page? There the text
# puts the norm after the sum, as the paper does, and the code puts it before (a comment admits it); its layer
# norm divides by n - 1, Ba et al. by n; byte pairs, beam search, the shared table and averaging are named,
# without code that runs; and its torch and torchtext cannot be installed on Python 3.11 or later.
#
# **In twenty minutes**: [why look at other words](#why), [attention in figures](#figures), [many heads](#many-heads),
# [the mask](#mask), [the whole model](#model), [it copies](#copy), [it translates](#learns), [it is a GPT](#gpt).
# **All of it**: part 1 builds the model, part 2 trains it and searches with it, part 3 translates German, part 4
# measures why each piece is there, part 5 makes a language model of it and measures what has changed since. Exercises
# are at the end.
#
# | word here | word elsewhere |
# | --- | --- |
# | subword, a word or a piece of one; its id | token |
# | scores, before softmax | logits |
# | state: the vector at a position | hidden state, activation |
# | table of embeddings, used three times | embedding matrix; tied weights |
# | memory; attention to it | encoder output; cross-attention |
# | mask of the future | causal mask |
# | reads the right target while training | teacher forcing |
# | wanted probabilities, without smoothing | one-hot target |
# | update; pass through the pairs | step; epoch |
# | learns by heart | overfits |
# | search; beginnings that it keeps | decoding, inference; hypotheses |
# | decoder without a source | decoder-only model, GPT |
#
# **Letters.** Capitals have one meaning: B sentences at a time, S subwords of a source sentence, T of a target
# sentence, D the width of the model (the paper's $d_\text{model}$), H heads ($h$), F the inner width of a feed-forward
# layer ($d_\text{ff}$), N layers, C choices: subwords that the model knows. A comment such as `# (B, T, D)` is the
# shape of a result.

# %%
import functools
import itertools
import json
import math
import random
import re
import time
from collections import Counter

import altair as alt
import numpy as np
import torch  # numpy with gradients; its arrays are called tensors
from torch import nn

torch.manual_seed(1)  # the same random numbers in each run
torch.set_num_threads(1)  # our products are too small to share
torch.set_printoptions(precision=2, sci_mode=False)
words = ["the", "dog", "sleeps"]
x = torch.randn(1, 3, 8)  # (B, T, D): one sentence, 3 words, D = 8
print(x)


# %% tags=["folded"]
# @title How the pictures are drawn (nothing of the model)
def heatmap(maps, rows, columns=None, marked=(), numbers=False):
    """Draw matrices, {title: matrix}: 0 is white, 1 blue, -1 orange.

    Titles "a, b" make a table of maps with a row for each a. marked:
    outlined, as (title, row, column). numbers: write the values.
    """
    rows, columns = (
        [f"{i} {name}" for i, name in enumerate(names)]
        for names in (rows, columns or rows)
    )
    cells = []
    for title, matrix in maps.items():
        above, _, name = title.rpartition(", ")
        for i, (row, line) in enumerate(zip(rows, matrix, strict=True)):
            line = zip(columns, line, strict=True)
            for j, (column, v) in enumerate(line):
                cell = {"above": above, "map": name, "row": row}
                cell |= {"column": column, "text": f"{v:.2f}"}
                cell["value"] = round(max(float(v), -9), 3)
                cell["marked"] = (title, i, j) in marked
                cells.append(cell)
    side = 38 if numbers else min(30, max(11, 130 // len(columns)))
    side, most = alt.Step(side), 6 if numbers else 1
    axis = alt.Axis(title=None, labelFontSize=10, labelOverlap=False)
    shown = "text:N" if numbers else "value:Q"
    chart = alt.Chart().encode(
        alt.X("column:N", sort=None, axis=axis),
        alt.Y("row:N", sort=None, axis=axis),
        tooltip=["row:N", "column:N", shown],
    )
    colours = alt.Scale(
        domain=[-most, 0, most],
        range=["#c2560c", "white", "#08519c"],
        interpolate="rgb",
        clamp=True,
    )
    squares = chart.mark_rect().encode(
        alt.Color("value:Q", legend=None, scale=colours)
    )
    frames = chart.mark_rect(
        filled=False, stroke="#c2560c", strokeWidth=2
    )
    frames = frames.transform_filter("datum.marked")
    texts = chart.mark_text(fontSize=12).encode(text="text:N")
    chart = alt.layer(squares, texts if numbers else frames)
    chart = chart.properties(width=side, height=side)
    chart = chart.properties(data=alt.Data(values=cells))
    names = list(dict.fromkeys(cell["map"] for cell in cells))
    left = alt.Header(title=None, labelAngle=0, labelAlign="left")
    table = chart.facet(
        row=alt.Row("above:N", header=left),
        column=alt.Column("map:N", sort=names, title=None),
    )
    return table.properties(description="Weights: " + "; ".join(maps))


def curves(lines, x, y):
    """Draw curves, {name: (xs, ys)}, with the titles of both axes."""
    values = [
        {"name": name, "x": float(a), "y": float(b)}
        for name, (xs, ys) in lines.items()
        for a, b in zip(xs, ys, strict=True)
    ]
    legend = alt.Legend(orient="bottom", columns=2)
    chart = alt.Chart(alt.Data(values=values)).mark_line()
    chart = chart.properties(width=280, height=180)
    return chart.encode(
        alt.X("x:Q", title=x),
        alt.Y("y:Q", title=y),
        alt.Color("name:N", sort=None, title=None, legend=legend),
        tooltip=["name:N", "x:Q", "y:Q"],
    ).properties(description=f"Curves: {y} by {x}")


# %% [markdown]
# # Part 1: the model
#
# That sentence, a vector of D = 8 random numbers for each of three words, is the test of every piece until the model
# stands.
#
# Before 2017, translators were recurrent networks: they read word after word, so word 50 waits for 49 others, and what
# word 1 said must survive 49 changes of one vector. Convolutions (ByteNet, ConvS2S) read all words at once, but words
# far apart meet only after many layers. Attention was an addition to recurrence (Bahdanau et al. 2015). The paper keeps
# it alone: every word looks at every other in one step, and a layer is a few large products of matrices. The price
# (table 1): of the order of $n^2 D$ operations a layer for n words, where a recurrent layer has $n D^2$.
#
# <a id="why"></a>
#
# ## Why look at other words?
#
# *Heute isst der Lehrer den Apfelkuchen auf.* Does the teacher eat the cake, or eat it up? *isst* alone does not say:
# it hangs on the last word, *auf*, four words further. Who translates the sentence must look there just when it
# matters. The translator of part 3, which has only read pairs of sentences, looks here when it has written "Today the
# teacher eats" (it reads words in pieces, *auf* as a, u, f; the numbers are weights, which sum to 1):
#
# ![The weights of each piece of the German sentence: 0.99 on the a of auf](images/walkthrough/reason.svg)
#
# So attention is a choice of places, made anew for each word, and learned. To learn by gradients, it must be a smooth
# one: not one place or another, but more of one and less of another.
#
# ## The model in a minute
#
# The model has two halves. The *encoder* reads the source and makes a vector for each of its subwords; together they
# are the *memory*. The *decoder* reads the memory and the target so far, and says what comes next; that is added to the
# target, and the decoder is asked again (it is *auto-regressive*). We build both from their smallest parts.
#
# ![The Transformer: encoder on the left, decoder on the right](images/walkthrough/architecture.svg)
#
# *Figure 1 of the paper, drawn anew, with the shapes of what flows.*
#
# ## Softmax
#
# Attention needs weights: positive numbers that sum to 1. Softmax makes them from any scores $z_1, z_2, \ldots$
# (elsewhere *logits*):
#
# $$
# \text{softmax}(z)_i = \frac{e^{z_i}}{\sum_j e^{z_j}}
# $$
#
# A score of $-\infty$ gets the weight 0. Taking the largest score off all of them changes nothing and avoids overflow
# (torch's `max` and `sort` along an axis return the `.values` and their `.indices`).


# %%
def softmax(scores):
    """Scores to weights that sum to 1, along the last dimension."""
    highest = scores.max(-1, keepdim=True).values
    powers = torch.exp(scores - highest)
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
# $d_k$ terms, with variance $d_k$. Large scores make softmax a hard choice, whose gradient is almost 0. Divided by
# the root, the variance is 1. The paper also names additive attention, a small network for each score: slower than a
# product of matrices, but better than one without the root if keys are wide.
#
# A *mask* says where a query may look: True is allowed, False gets the score $-\infty$. In the code, `K.transpose(-2,
# -1)` swaps the last two axes, and `a.masked_fill(m, v)` is `np.where(m, v, a)`.


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
# learned projections will change that.
#
# <a id="figures"></a>
#
# The same in figures, for the first three numbers of each word, with a mask that hides what stands to the right:

# %%
Q = K = V = x[0, :, :3]  # (3, 3): three words, three numbers each
scaled = Q @ K.T / math.sqrt(3)
hidden = scaled.masked_fill(~torch.ones(3, 3).tril().bool(), -math.inf)
shares = softmax(hidden)
looks = {"Q Kᵀ": Q @ K.T, "/ √3": scaled, "masked": hidden}
means = {"softmax": shares, "V": V, "softmax × V": shares @ V}
chart = heatmap(looks, words, numbers=True)
chart &= heatmap(means, words, ["", "", ""], numbers=True)  # below
chart.properties(description="Attention in figures, in six steps")

# %% [markdown]
# Rows look, columns are looked at, with their places from 0 (in V and the answers at the right, columns are the three
# numbers). "the" sees itself alone, so its answer is its row of V; "sleeps" sees three words, and its answer is the
# mean of their rows, by its weights.
#
# <a id="many-heads"></a>
#
# ## Many heads (section 3.2.2)
#
# One softmax gives one mean. To look at several places at once, $h$ attentions run side by side, each with its own
# learned projections to a smaller width, $W_i^Q$ and $W_i^K$ ($d_\text{model}$ by $d_k$) and $W_i^V$ ($d_\text{model}$
# by $d_v$); their answers are joined and projected once more, by $W^O$ ($h d_v$ by $d_\text{model}$):
#
# $$
# \text{MultiHead}(Q, K, V) = \text{Concat}(\text{head}_1, \ldots, \text{head}_h) W^O
# $$
#
# $$
# \text{head}_i = \text{Attention}(Q W_i^Q, K W_i^K, V W_i^V)
# $$
#
# The paper has $h = 8$ heads of width $d_k = d_v = 64$, so all of them are as wide as the model, $d_\text{model}=512$,
# and cost what one wide head costs. In code the projections of all heads are one matrix, whose result is cut
# into H pieces. Queries come from `x`, keys and values from `memory`, which may be another sentence. `nn.Linear` is
# $xW^\top + b$ with a learned matrix (outputs by inputs) and bias; `nn.Module` finds all learned numbers inside a
# class, and calling an object of such a class runs its `forward`. `unflatten(-1, (H, -1))` cuts the last axis into
# two, `flatten(2)` joins all axes from 2 on, and a name that ends in `_` changes in place. We start matrices with
# random numbers of the size that keeps vectors about as large as they were (Xavier Glorot and Bengio 2010).
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
        self.weights = weights.detach()  # (B, H, T, S), to be drawn
        return self.output(heads.transpose(1, 2).flatten(2))


two_heads = MultiHead(D=8, H=2)
print(two_heads(x, x)[0])
both = {f"Head {h + 1}": two_heads.weights[0, h] for h in range(2)}
heatmap(both, words)

# %% [markdown]
# `grad_fn`, in what is printed, says that torch remembers how a result was made; from that it computes gradients later
# (`detach` drops it).
#
# The model attends in three places (section 3.2.3). In the encoder, each source position looks at all source positions.
# In the decoder, each target position looks at itself and at earlier ones. Between the two, queries come from the
# decoder, keys and values from the memory; so each target position sees the whole source (*cross-attention*).
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
# The paper goes from 512 numbers to 2,048 inside, $d_\text{ff}$, and back. Below, 8 to 16 and back; `torch.relu(x)` is
# $\max(0, x)$.


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
        self.scale = nn.Parameter(torch.ones(D))  # a learned array
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
# near "change nothing", and gradients have a way around each (He et al. 2016). The paper normalises after the sum,
# $\text{LayerNorm}(x + \text{Sublayer}(x))$, called *post*; most models today before the sub-layer,
# $x + \text{Sublayer}(\text{LayerNorm}(x))$, called *pre*.
#
# **Dropout** (section 5.4; Srivastava et al. 2014) is the paper's $P_\text{drop} = 0.1$ (0.3 in the big model, 0.1
# for English to French): while training, a tenth of the sub-layer's entries, chosen at random, become 0, and the
# others are multiplied by 1 / 0.9. So no later layer relies on a single entry. It is off when the model translates.
# Below, the sub-layer is $\max(0, x)$.


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
# scores the next subword (Press and Wolf 2017). For that its entries must be small, about $1 / \sqrt{D}$; so at the
# input they are multiplied by $\sqrt{D}$.
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
# on a circle. Three positions later it has turned by the same angle wherever it began, so one linear map can look,
# say, three places back from anywhere. The paper hoped that this also serves sentences longer than those of the
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


PAD, UNK, BOS, EOS = range(4)  # <pad>, <unk>, <s>, </s>
ids = torch.tensor([[4, 5, 6]])  # "the dog sleeps"
vectors = Embedding(C=7, D=8, dropout=0)(ids)
print(vectors[0])
waves = sinusoids(40, 32).T.tolist()
curves(
    {f"entry {i}": (range(40), waves[i]) for i in (0, 4, 8, 12)},
    "position",
    "what is added",
)

# %% [markdown]
# Four of 32 entries: each wave is three times as long as the one before. The fast ones differ between neighbours,
# the slow ones between beginning and end. The first four ids stand for padding, an unknown subword, the start and the
# end of a sentence.
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
print(encoder(vectors, mask)[0])
print("looks at padding:", encoder.attention.weights[..., 2].max())

# %% [markdown]
# <a id="mask"></a>
#
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
print(decoder(vectors, causal_mask(3), encoder(vectors), None)[0])
seen = {"Mask": causal_mask(3).float()}
seen["Weights"] = decoder.attention.weights[0, 0]
heatmap(seen, words)

# %% [markdown]
# <a id="model"></a>
#
# ## The whole model (figure 1)
#
# A translator is a probability of the next target subword, given the source and the target so far. The encoder turns
# the source into the memory, a vector for each subword; the decoder turns the target so far into a vector for each
# position; and products with the table make C scores, whose softmax is the probability. With *pre*, one more norm ends
# encoder and decoder; else `nn.Identity` stands there, which returns its input.


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
so_far = torch.tensor([[BOS, 4, 5]])
print(softmax(model(ids, so_far))[0])

# %% [markdown]
# Three rows, for what comes after `<s>`, after `<s> 4` and after `<s> 4 5`: a probability for each of seven ids. The
# defaults are the paper's base model. How large is it? (On the device "meta" arrays have a shape and no memory;
# `numel` is numpy's `size`.)


# %%
def count(model):
    weights = sum(weight.numel() for weight in model.parameters())
    return f"{weights / 1e6:,.1f} million"


with torch.device("meta"):
    print(count(Transformer(37000)))
    print(count(Transformer(37000, 1024, 4096, 16)))

# %% [markdown]
# The paper (table 3) says 65 and 213 million, with its 37,000 subwords. The big model agrees within one percent; of
# the base model two million are not explained by the text.
#
# ## An untrained model speaks
#
# To translate, give the decoder `<s>`, append the likeliest subword, ask again, and so on until `</s>`. `pad` makes a
# rectangle of lists of ids; `no_grad` means that nothing is remembered for gradients; `cat` is `concatenate`.


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
# Every part has run. What an untrained model says hardly depends on what it read. Exercise 2 asks why.
#
# # Part 2: training and search
#
# ## Batches (section 5.1)
#
# In training the decoder reads the right target, whatever it would have said itself (*teacher forcing*), and predicts
# at each position what comes one place later. So the target stands in a batch twice: after `<s>` as what is read, and
# before `</s>` as what is wanted.
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


for part in make_batch([([4, 5, 6], [7, 8, 9, 10]), ([4], [7, 8])]):
    print(part)

# %% [markdown]
# Padding costs time like text. So pairs of similar length share a batch, and what is limited is not its number of
# sentences but `tokens`, that number times the length of its longest side. The paper's batches have about 25,000 source
# and 25,000 target subwords.


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


some = [([4] * n, [5] * n) for n in (2, 3, 5, 8)]
print(token_batches(some, tokens=12, seed=1, epoch=0))

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
# If $q$ is 1 for the right subword and 0 elsewhere (*one-hot*), this is $-\log$ of its probability: 0.69 for one half,
# 0 for certainty, which only infinite scores reach. Label smoothing asks for $1 - \epsilon_{ls}$ instead,
# $\epsilon_{ls} = 0.1$, and shares $\epsilon_{ls}$ among the others, padding excepted. The paper cites Szegedy et al.
# 2016, who share it among all; this form is The Annotated Transformer's. `log_softmax` is the logarithm of softmax.


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


right_ids = torch.tensor([5, 4, 6])
blind = cross_entropy(torch.zeros(3, 7), smoothed(right_ids, C=7))
print("of a blind guess:", blind / 3)
heatmap(
    {"Wanted": smoothed(right_ids, C=7, smoothing=0.5)},
    ["dog", "the", "sleeps"],
    ["pad", "unk", "s", "/s", *words],
)

# %% [markdown]
# The picture has $\epsilon_{ls} = 0.5$, so that the shares can be seen. A blind guess costs $\log(7) = 1.95$, smoothed
# or not.
#
# The chart has the loss of one prediction by the probability it gives the right subword; ten others share the rest.
# With smoothing the loss rises again above $1 - \epsilon_{ls}$. The paper says that this makes perplexity ($e$ to the
# power of the loss) worse, and gains BLEU, a measure of translations (part 3); part 4 measures loss and the share of
# right subwords.

# %%
p_right = torch.arange(0.02, 1, 0.005)
guesses = torch.stack([p_right, *[(1 - p_right) / 10] * 10], 1).log()
by_smoothing = {}
for epsilon in (0.0, 0.1, 0.3):
    q = torch.tensor([1 - epsilon, *[epsilon / 10] * 10])
    one_loss = -(q * guesses).sum(1)
    by_smoothing[f"smoothing {epsilon}"] = (p_right, one_loss)
curves(by_smoothing, "probability of the right subword", "loss, nats")

# %% [markdown]
# ## Adam and its rate (section 5.3)
#
# Adam (Kingma and Ba 2015) keeps two running means for each weight $w$: $m$ of its gradient $\nabla$ and $v$ of the
# gradient's square. Both start at 0, which $1 - \beta^t$ makes up for at update $t$; $\eta$ is the rate:
#
# $$
# m \leftarrow \beta_1 m + (1 - \beta_1) \nabla \quad v \leftarrow \beta_2 v + (1 - \beta_2) \nabla^2
# $$
#
# $$
# w \leftarrow w - \eta \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}
# $$
#
# So a weight with small gradients moves as far as one with large ones. The paper has $\beta_1 = 0.9$, $\beta_2 = 0.98$
# (the usual 0.999 forgets slower) and $\epsilon = 10^{-9}$, which keeps the fraction finite. In the code,
# `a.mul_(b).add_(c, alpha=d)` sets `a` to `a * b + d * c`; with `requires_grad`, torch keeps what `backward()` needs to
# compute the gradients, each into the `.grad` of its weight.


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
(weight * torch.tensor([100.0, 0.01])).sum().backward()
Adam([weight]).step(rate=0.1)
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


rates, thousands = {}, range(100, 20001, 100)
for D, warmup in ((1024, 4000), (1024, 2000), (128, 2000)):
    ys = [learning_rate(n, D, warmup) for n in thousands]
    rates[f"D {D}, warmup {warmup}"] = (thousands, ys)
curves(rates, "update", "learning rate")

# %% [markdown]
# ## An update, and a training
#
# Forward, loss, backward, step. Padding in what is wanted gives no loss; the loss is the mean over all other positions
# of the batch. `backward()` adds to what `.grad` has, so `zero_grad()` comes first.


# %%
def loss_of(model, batch, smoothing):
    """Sum and number of the losses of a batch; padding has none."""
    source, given, wanted = batch
    real = wanted != PAD
    scores = model(source, given)[real]  # (n, C)
    asked = smoothed(wanted[real], scores.shape[1], smoothing)
    return cross_entropy(scores, asked), len(scores)


def update(model, adam, batch, rate, smoothing):
    """Change the weights by one batch. Returns its mean loss."""
    model.train()  # with dropout
    model.zero_grad()
    total, n = loss_of(model, batch, smoothing)
    (total / n).backward()
    adam.step(rate)
    return total.item() / n


def training(
    model, pairs, updates, tokens, rate, smoothing=0.1, seed=1
):
    """Train; yields (number of the update, loss) after each.

    rate: the learning rate as a function of that number.
    """
    torch.manual_seed(seed)  # of dropout
    adam, step = Adam(model.parameters()), 0
    for epoch in itertools.count():
        for rows in token_batches(pairs, tokens, seed, epoch):
            step += 1
            batch = make_batch([pairs[row] for row in rows])
            loss = update(model, adam, batch, rate(step), smoothing)
            yield step, loss
            if step == updates:
                return


# %% [markdown]
# Since gradients add up, a batch that is too large can be cut: on one device part after part, then one step
# (*accumulation*); on several devices a part each, after which `torch.distributed.all_reduce` adds up the gradients.
# Divide by the number of positions of the whole batch, not of the part.


# %%
def gradients(model, batches):
    """Gradients of the mean loss over all positions of the batches."""
    model.zero_grad()
    n = sum((wanted != PAD).sum() for _, _, wanted in batches)
    for batch in batches:
        (loss_of(model, batch, 0.1)[0] / n).backward()
    return [weight.grad.clone() for weight in model.parameters()]


torch.manual_seed(1)
small = Transformer(C=7, D=8, F=16, H=2, N=2, dropout=0.0)
at_once = gradients(small, [make_batch(some)])
apart = gradients(small, [make_batch(some[:3]), make_batch(some[3:])])
gap = max((a - b).abs().max() for a, b in zip(at_once, apart))
print(f"largest difference {gap:.0e}")

# %% [markdown]
# Training and machine (section 5.2): 0.4 seconds an update for base models (100,000 updates, 12 hours), 1.0 for big
# ones (300,000, 3.5 days), on one machine with eight P100 graphics processors.
#
# <a id="copy"></a>
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


def copy_rate(step):
    return learning_rate(step, D=32, warmup=100)


question = list(range(4, 14))
torch.manual_seed(1)
copier = Transformer(C=14, D=32, F=64, H=4, N=1, dropout=0.0)
copy_losses = []
for step, loss in training(
    copier, copy_pairs(4000), 300, tokens=704, rate=copy_rate
):  # 704: 64 pairs of 11
    copy_losses.append(loss)
    if step % 50 == 0:
        answer = greedy(copier, [question], limit=12)[0]
        print(f"{step:4} {loss:.3f}", *answer)

# %%
learned = {"loss": (range(1, 301), copy_losses)}
learned["least"] = (1, 300), (0.5735, 0.5735)
curves(learned, "update", "smoothed loss, nats")

# %% [markdown]
# Each `MultiHead` keeps the weights of its last call. To copy, the decoder must look at the number that it writes next:

# %%
copier.eval()
copied, copying, _ = make_batch([(question, question)])
copier(copied, copying)
looked = copier.decoder[0].cross.weights[0]  # (H, T, S)
heatmap(
    {f"Head {h + 1}": looked[h] for h in range(4)},
    ["s", *question],
    [*question, "/s"],
)

# %% [markdown]
# ## Beam search (section 6.1)
#
# Greedy search never takes back a choice. Beam search keeps the best few beginnings, its *beams*. Each step continues
# every beam by every subword. Sort all continuations by $\log P$, the sum of the logarithms of their probabilities.
# One that ends in `</s>` and is among the first `beam_size` is finished; the first `beam_size` that do not end are
# the next beams. (Each beam ends only once, so `beam_size` of the first `2 * beam_size` do not.) The search ends when
# `beam_size` have finished *and*, in this or an earlier step, the best of all continuations was one that ends in
# `</s>`; `early` leaves the second condition out, as many programs do, and part 3 shows what that costs. $\log P$ is
# lower for a longer text, so the finished ones are ranked by $\log P / ((5 + T) / 6)^\alpha$, T their length with
# `</s>` (Wu et al. 2016). The paper has 4 beams, $\alpha = 0.6$, and stops at 50 subwords more than the source has.
#
# ![Two steps of a search with two beams](images/walkthrough/beam.svg)
#
# *Two steps with two beams: filled beginnings are kept. Greedy search would take "the" and end with 0.20; "a dog" has
# 0.36.*


# %%
def beam_search(next_logs, limit, beam_size=4, alpha=0.6, early=False):
    """The best lists of ids after <s>, as (score, log P, ids).

    next_logs: k lists of ids to log-probabilities (k, C).
    """
    beams, finished, best_ended = [(0.0, [BOS])], [], early
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
        finished = sorted(finished, key=lambda c: -c[0])[:beam_size]
        beams = [c for c in grown if c[1][-1] != EOS][:beam_size]
        best_ended = best_ended or grown[0][1][-1] == EOS
        if len(finished) == beam_size and best_ended:
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


for _, log, answer in beam_search(table_logs, 5, 2, alpha=0):
    print(f"P {math.exp(log):.2f}", *(CHOICES[i] for i in answer))

# %% [markdown]
# The search asks only for logarithms of what comes next, so a table will do, and so will a model (`expand` repeats an
# axis without a copy, as `np.broadcast_to`; -1 leaves an axis as it is):


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


def show(hypotheses, written):
    """Print what beam_search returned; written: ids to text."""
    for score, log, ids in hypotheses:
        print(f"score {score:.2f}, log P {log:.2f}:", written(ids))


show(beam_search(model_logs(copier, question), 60, 3), str)

# %% [markdown]
# ## Averaging (section 6.1)
#
# Near the end of a training the weights still jump around. The paper's models are the mean of the last 5 checkpoints,
# of the last 20 for the big ones: a *checkpoint* is a copy of all weights, saved every ten minutes. `state_dict` gives
# the weights as {name: tensor}, `load_state_dict` puts such weights into a model. Part 4 measures what the mean gains.


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
# A grammar of some 50 lines makes such sentences with their English; it is folded, and what it makes is below.

# %% tags=["folded"]
# @title The grammar (auf essen stands for any verb, - marks one that does not split)
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


# %%
chance = random.Random(1)
text = list(dict.fromkeys(sentence(chance) for _ in range(6000)))
new_text = [pair for pair in text if "Nussbrot" in pair[0]][:100]
others = [pair for pair in text if "Nussbrot" not in pair[0]]
valid_text, train_text = others[:100], others[100:]
QUESTIONS = [
    "Heute isst der Lehrer den Apfelkuchen auf.",
    "Der Lehrer sagt, dass die alte Köchin den Pilzkuchen mitbringt.",
    "Der Mann will das große Nussbrot wegwerfen.",
]
print(f"{len(train_text)} pairs to learn from, 100 to test")
print(f"and {len(new_text)} with a word that training never shows")
for pair in train_text[:5]:
    print("", *pair, sep="\n")

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


train_lines = [line for pair in train_text for line in pair]
counts = Counter(
    word for line in train_lines for word in words_of(line)
)
merges = learn_merges(counts, 200)
print("first:", *("".join(pair) for pair in merges[:8]))
for word in ("Apfelkuchen", "aufgegessen", "Nussbrot", "Birnenbrot"):
    print(word, "=", *cut("▁" + word, merges))

# %% [markdown]
# `Nussbrot` (nut bread) was held back, and `Birnenbrot` (pear bread) is outside of the grammar: both can be cut.
# Subwords of the training text and its single letters make the vocabulary. What has no id becomes `<unk>`, as the
# `B`, which no word of the training text has. There are fewer subwords than merges, since most merges make a piece of
# a word that a later one joins again.


# %%
@functools.cache  # a word that comes again is not cut again
def pieces_of(word):
    return cut(word, merges)


known = {part for word in counts for part in pieces_of(word)}
known |= {part for word in counts for part in letters(word)}
subwords = ["<pad>", "<unk>", "<s>", "</s>", *sorted(known)]
number = {subword: i for i, subword in enumerate(subwords)}


def ids_of(line):
    pieces = [p for word in words_of(line) for p in pieces_of(word)]
    return [number.get(piece, UNK) for piece in pieces]


def text_of(ids):
    joined = "".join(subwords[i] for i in ids).replace("</w>", "")
    return joined.replace("▁", " ").strip()


train, valid, new = (
    [(ids_of(german), ids_of(english)) for german, english in pairs]
    for pairs in (train_text, valid_text, new_text)
)
print(len(subwords), "subwords;", train_text[0][0], "=", *train[0][0])
print(all(text_of(ids_of(line)) == line for p in text for line in p))

# %% [markdown]
# <a id="learns"></a>
#
# ## It learns
#
# A model of the paper's kind, 64 wide instead of 512. *Right* is the share of unseen sentences that it translates
# exactly. The three questions need a split verb, a verb at the end, and a word that training never shows; none of them
# stands in the training text.


# %%
def right(model, pairs):
    """The share of pairs whose greedy translation is exact."""
    answers = greedy(model, [source for source, _ in pairs], 40)
    same = [a == target for a, (_, target) in zip(answers, pairs)]
    return sum(same) / len(same)


def report(model, step):
    share, share_new = right(model, valid), right(model, new)
    print(f"After {step} updates: {share:.0%} right,", end=" ")
    print(f"{share_new:.0%} of those with the new word")
    for ids in greedy(model, [ids_of(q) for q in QUESTIONS], 40):
        print("   ", text_of(ids)[:76])


SIZES = {"D": 64, "F": 128, "H": 4, "N": 2}
torch.manual_seed(1)
translator = Transformer(len(subwords), **SIZES)


# %% tags=["long"]
def text_rate(step):
    return learning_rate(step, D=64, warmup=200) / 2


report(translator, 0)
checkpoints = []
for step, _ in training(translator, train, 400, 1024, text_rate):
    if step in (100, 200, 400):
        report(translator, step)
    if step > 300 and step % 20 == 0:
        state = translator.state_dict().items()
        checkpoints.append({name: w.clone() for name, w in state})

# %% [markdown]
# The mean of the last five checkpoints; then fifty sentences, searched by both rules of part 2, and how many times the
# model was asked in all:

# %% tags=["long"]
averaged = Transformer(len(subwords), **SIZES)
averaged.load_state_dict(mean_weights(checkpoints))
print(f"last weights {right(translator, valid):.1%} right,", end=" ")
print(f"their mean {right(averaged, valid):.1%}")


def searched(beams, early):
    """How many of fifty are exact, and the steps that they took."""
    exact, steps = 0, []
    for source, target in valid[:50]:
        ask = model_logs(translator, source)

        def logs(ids):
            steps.append(len(ids))
            return ask(ids)

        found = beam_search(logs, 60, beams, early=early)
        exact += found[0][2] == target
    return f"{exact:9} {len(steps):5}"


print("          early rule         both conditions")
print("beams     right steps        right steps")
for k in (1, 2, 4, 8):
    print(f"{k:5}", searched(k, True), "  ", searched(k, False))

# %% [markdown]
# **A search that stops early can lose to greedy.** A model that is sure gives one beam nearly all probability; the
# others hold what it thinks unlikely, and some of that is short. When as many hypotheses have ended as there are
# beams, the best may still be in the middle of its sentence, and is lost. Where four beams differ: the answer of
# the grammar, that of the early rule, and that of both conditions:

# %% tags=["long"]
for source, target in valid[:50]:
    ask = model_logs(translator, source)
    rules = (True, False)
    hypotheses = [
        beam_search(ask, 60, 4, early=rule)[0] for rule in rules
    ]
    if hypotheses[0] != hypotheses[1]:
        print(text_of(target))
        show(hypotheses, text_of)

# %% [markdown]
# ## Its attention, everywhere
#
# The first question again, in the three places where the model attends: a row of maps for each layer, a column for each
# head. Each row of a map sums to 1. First the encoder over itself:

# %% tags=["long"]
translator.eval()
first = ids_of(QUESTIONS[0])
(written,) = greedy(translator, [first], 40)
read, said, _ = make_batch([(first, written)])
translator(read, said)


def names_of(ids):
    names = [subwords[i].replace("</w>", "") for i in ids]
    return [name.strip("▁<>") for name in names]


def maps(kind, layers):
    """{title: weights} of each layer and head."""
    return {
        f"Layer {i}, Head {h}": weights
        for i, layer in enumerate(layers, 1)
        for h, weights in enumerate(getattr(layer, kind).weights[0], 1)
    }


heatmap(maps("attention", translator.encoder), names_of(read[0]))

# %% [markdown]
# The decoder over itself: the upper right is the future, and empty.

# %% tags=["long"]
heatmap(maps("attention", translator.decoder), names_of(said[0]))

# %% [markdown]
# The decoder over the source; a row names what was read last, and predicts what comes next. The row `eats` is about to
# write "up". It needs `auf`, which is cut into `a u f`: three of the eight heads put nearly all of their weight on `a`
# (outlined; the first of them is the picture of part 1). The row `teacher`, which writes "eats", looks at `isst` in
# most heads.

# %% tags=["long"]
pieces_read, pieces_said = names_of(read[0]), names_of(said[0])
spot = pieces_said.index("eats"), pieces_read.index("a")
spots = [
    (f"Layer {n}, Head {h}", *spot) for n, h in ((1, 1), (1, 2), (2, 3))
]
cross = maps("cross", translator.decoder)
heatmap(cross, pieces_said, pieces_read, spots)

# %% [markdown]
# ## Try it
#
# [Type a sentence, point at a head, follow the search](walkthrough.html#try-it): the HTML form of this page, one file
# that needs no network, translates with these weights in plain JavaScript. Download it and open it.
#
# ## The same on real text
#
# Multi30k (Elliott et al. 2016) has 29,000 captions of photographs. The package of this project, which computes what
# this page computes but faster (see the appendix), was trained on them once, at commit 7a1e918, on two cores without
# a graphics processor. At that commit this repeats it:
#
#     git checkout 7a1e918
#     cp recipes/multi30k.yaml params.yaml
#     dvc exp run -S back_translation_steps=0 -S max_steps=1300 -S average=valid -S precision=float32
#
# That is the recipe with a quarter of its updates, without its back-translation (training text whose source a model
# has translated from the target) and in float32 instead of bfloat16, numbers of half as many bits. It is pre-norm,
# 128 wide, with 4 layers and Muon for the matrices, an optimiser that makes the step of a matrix orthogonal (Jordan
# et al. 2024). The whole recipe reaches 43.5 BLEU ([results](results.md#multi30k)). Below, *valid* is text kept apart
# to choose settings by, the *test set* text that is translated once, at the end.
#
# **BLEU** (Papineni et al. 2002) counts all runs of $n$ words in the translations; $p_n$ is the share that the human
# translations have as well. It is 100 times the geometric mean of $p_1$ to $p_4$; and if the translations have fewer
# words in all ($c$) than the human ones ($r$), also times $e^{1 - r / c}$.


# %% tags=["folded"]
# @title Numbers measured before: of Multi30k, and of parts 4 and 5
stored = json.loads("""docs/walkthrough.json""")

# %%
real = stored["multi30k"]
print("BLEU on valid with one beam:")
print(f"last weights {real['last']:.1f}, mean of 9 {real['mean']:.1f}")
print("With the mean of the last two:")
print("alpha  ", *(f"{a:5}" for a in real["penalties"]))
for k, row in real["search"]:
    print(f"beams {k}", *(f"{value:5.1f}" for value in row))
print(f"On the test set, 4 beams, alpha 1.5: {real['test']:.1f}")
for word, pieces in real["unseen"]:
    print(word, "=", pieces)
for source, human, answer in real["translations"]:
    print("", source, human, "> " + answer, sep="\n")

# %% [markdown]
# The loss of this short training still falls, so the mean of nine checkpoints is worse than the last; at the end of
# the full recipe it gains 0.4 BLEU. The model above has the mean of the last two, which were best on valid. It was
# searched by the early rule: with $\alpha = 0$, eight beams lose 0.3 against greedy search; with $\alpha = 1.5$,
# which likes longer translations, they gain 1.5. (The other rule gains 0.1 to 0.2 at four beams, [measured
# since](results.md#the-end-of-a-search).) After `>` is the model's translation of sentences that we wrote; the words
# on top are not in its training text.
#
# ## The paper's tables
#
# **Table 2**, BLEU on newstest2014, English to German and to French: the base model has 27.3 and 38.1, the big one 28.4
# and 41.8, with $3.3 \cdot 10^{18}$ and $2.3 \cdot 10^{19}$ operations of training; before them, GNMT (Wu et al. 2016)
# had 24.6 and 39.9 with $2.3 \cdot 10^{19}$ for German, and ConvS2S (Gehring et al. 2017) 25.2 and 40.5 with
# $9.6 \cdot 10^{18}$. Nobody has trained the two with this project yet; `recipes/wmt14_base.yaml` and
# `recipes/wmt14_big.yaml` are ready.
#
# **Table 3** varies one thing at a time. The paper's numbers are BLEU on newstest2013, EN-DE, six layers, 100,000
# updates (big: 300,000). Ours are BLEU on Multi30k's validation set, DE-EN: three layers, D = 128, pre-norm, Muon,
# 10,000 captions, 600 updates, two seeds ([`recipes/table3.yaml`](../recipes/table3.yaml); four more rows and
# p-values in [results](results.md#a-small-table-3)). Only the direction can be compared; "?": p is 0.046 or more.
#
# | row | the paper: base 25.8 | here: base 23.8 |
# | --- | --- | --- |
# | A: one head | 24.9 (-0.9) | 22.6 (-1.2?) |
# | B: queries and keys a quarter as wide | 25.1 (-0.7) | 20.7 (-3.1) |
# | C: fewer layers | 23.7 (-2.1), 2 instead of 6 | 24.2 (+0.4?), 1 instead of 3 |
# | C: half the width | 24.5 (-1.3) | 20.8 (-3.1) |
# | D: no dropout | 24.6 (-1.2) | 26.0 (+2.2) |
# | D: no label smoothing | 25.3 (-0.5) | 23.4 (-0.4?) |
# | E: learned positions | 25.7 (-0.1) | 22.6 (-1.2?) |
# | big | 26.4 (+0.6) | not measured |
#
# Without dropout this short training is better, unlike the paper's: it saw each caption about three times, too few to
# *overfit*, to learn them by heart. By Dunnett's test, which counts all eleven comparisons, three of these
# differences are certain ($p \le 0.001$); one head and learned positions are on the border (0.049 and 0.046).
#
# # Part 4: why, measured
#
# Nine questions. Each takes one piece of the paper out, on a task where it matters: copy ten numbers, give them back
# in reverse order, or translate, with the text of part 3 or with 150 pairs of it. The pictures have the share of
# right subwords in greedy answers to unseen questions: a line from the lowest of three seeds (of the weights, the
# batches and dropout) to the highest, a dot at their mean. Beside it stands the loss, mean and range: $-\log p$ of
# the right subword in nats, without smoothing. Under each picture are the lines that make the change; what trains and
# judges comes last.

# %% tags=["folded"]
# @title How the measurements are drawn
measured = stored["measured"]


def ranges(*names):
    """Draw three seeds of each measurement, and write the losses."""
    rows = []
    for name in names:
        low, *_, high = sorted(seed[0] for seed in measured[name])
        mean = sum(seed[0] for seed in measured[name]) / 3
        loss = f"{mean:.3f}  ({low:.3f} to {high:.3f})"
        shares = [100 * seed[1] for seed in measured[name]]
        row = {"name": name, "loss": loss, "mean": sum(shares) / 3}
        rows.append(row | {"low": min(shares), "high": max(shares)})
    axis = alt.Axis(title=None, labelLimit=240)
    chart = alt.Chart(alt.Data(values=rows)).encode(
        alt.Y("name:N", sort=None, axis=axis), tooltip="mean:Q"
    )
    whole = alt.Scale(domain=[0, 100])
    x = alt.X("low:Q", title="right subwords, %", scale=whole)
    lines = chart.mark_rule(strokeWidth=3, color="#8db4d9")
    dots = chart.mark_circle(size=70, opacity=1).encode(x="mean:Q")
    losses = chart.mark_text(align="left", dx=12).encode(
        x=alt.datum(100), text="loss:N"
    )
    chart = lines.encode(x, x2="high:Q") + dots + losses
    return chart.properties(
        width=280,
        title=alt.Title("loss: mean (lowest to highest)", anchor="end"),
        description="Right subwords: " + "; ".join(names),
    )


# %% [markdown]
# ## Must the decoder see the source?

# %%
ranges("no cross-attention", "with both")

# %% [markdown]
# *With both* is the model of part 1, with cross-attention and positions. Chance is 10% right. Without cross-attention
# the decoder guesses blindly: ten numbers, and `</s>` in place eleven, which is certain, have a loss of
# $\frac{10}{11} \log(10) = 2.09$. (One of the three with both was just in a jump, with a loss of 0.39: training is
# not smooth. The mean of its last checkpoints has 0.004.) The change makes all that the decoder reads 0: a *forward
# hook* gets what a part returns, `y`, and returns what takes its place.


# %%
def no_cross(model):
    for layer in model.decoder:
        layer.cross.output.register_forward_hook(lambda m, i, y: 0 * y)


# %% [markdown]
# ## Must it know positions?

# %%
ranges(
    "no positions",
    "with both",
    "no positions, reverse",
    "with both, reverse",
)

# %% [markdown]
# Without them the model knows which numbers occur, not where. With them it reverses as well as it copies: to attention
# no place is far.


# %%
def no_positions(model):
    model.embedding.positions = lambda T, D: torch.zeros(T, D)


# %% [markdown]
# ## What does the mask prevent?

# %%
ranges("no mask", "with both")

# %% [markdown]
# Without it the loss is nearly 0, since the answer stands in what the decoder reads; greedy search, where it does not,
# fails.


# %%
def no_mask(model):
    model.mask = lambda T: torch.ones(T, T, dtype=torch.bool)


# %% [markdown]
# ## Waves, or learned vectors?
#
# The paper found no difference (25.8 and 25.7 BLEU, table 3, row E). Both at the usual rate, and at a tenth of it with
# 500 updates (small rate):

# %%
ranges(
    "with both",
    "learned",
    "waves, small rate",
    "learned, small rate",
)

# %% [markdown]
# Beside embeddings, whose entries are about 1, the waves have a size of 0.71 (root mean square). Learned vectors that
# start as large are as good at the usual rate, and have a lower loss at the small one with each seed. Their size at
# the start matters: on 6,000 captions, vectors that start with the size $1 / \sqrt{D}$ have 24.8 BLEU, with 0.71
# they have 25.6, and those that start as the waves 26.1 ([results](results.md#a-small-table-3)).


# %%
def learned_positions(model):  # at first as large as the waves
    learned = nn.Parameter(0.71 * torch.randn(64, model.D))
    model.embedding.learned = learned  # there the training finds it
    model.embedding.positions = lambda T, D: learned[:T]


# %% [markdown]
# ## Why divide by the root?

# %%
ranges("no root", "root")

# %% [markdown]
# Copy with one head, 64 wide. Without the root, scores grow with the width and softmax gives one place nearly all
# weight. Its gradient is then nearly zero, so attention hardly changes: hardly more than the length is learned. The
# change multiplies queries by the root, which undoes the division.


# %%
def change_heads(model, names, change):
    """Replace what projections return, y, by change(y, heads)."""
    for part in model.modules():  # all parts, at any depth
        if isinstance(part, MultiHead):
            for name in names:
                getattr(part, name).register_forward_hook(
                    lambda m, i, y, H=part.H: change(y, H)
                )


def no_root(model):
    change_heads(
        model, ["query"], lambda y, H: math.sqrt(model.D / H) * y
    )


# %% [markdown]
# ## Why several heads?

# %%
ranges("one head", "four heads")

# %% [markdown]
# The translation after 150 updates. Four heads have a lower loss than one with each seed; of the right subwords the
# best of one head (70%) passes the worst of four (65%). In the paper one head costs 0.9 BLEU. The change is `H=1`.
#
# ## Why the sum, why the norm, and where?

# %%
ranges("no sum", "no norm", "post", "post, 400 updates", "pre")

# %% [markdown]
# Copy with six layers in the encoder and six in the decoder, 200 updates at a fifth of the usual rate. Without the sum
# the loss stays above the 2.09 of a blind guess, though two numbers in ten are right; without the norm, vectors grow
# from layer to layer and the loss explodes. In the paper's order (post) the model knows after 200 updates which numbers
# occur, and after 400 it begins to place them; with the norm before the sub-layer (pre) it has placed most of them
# after 200. The paper gave its order a warm-up of 4,000 and 100,000 updates; pre needs less of both, and most models
# have it today (Xiong et al. 2020).


# %%
class NoSum(Residual):
    def forward(self, sublayer, x):
        return self.norm(sublayer(x))


def no_sum(model):
    for layer in [*model.encoder, *model.decoder]:
        layer.residuals = several(3, NoSum, model.D)


def change_norms(model, norm):
    for part in list(model.modules()):
        for name, child in part.named_children():
            if isinstance(child, LayerNorm):
                setattr(part, name, norm(model.D))


def no_norm(model):
    change_norms(model, nn.Identity)


# %% [markdown]
# ## Why warm up?

# %%
ranges("no warm-up", "warm-up")

# %% [markdown]
# Copy with two layers. Without warm-up the first hundred updates have the highest rate, and then both fall alike.
# Adam's first steps are as long as the rate, whatever the gradient, and go in the direction of a single batch. At the
# full rate they spoil the weights so that 250 updates do not mend it: no seed gets below the blind guess of 2.09.


# %%
def paper_rate(step, D, factor=1.0, first=1):
    return factor * learning_rate(max(step, first), D, warmup=100)


# %% [markdown]
# ## What do dropout, smoothing and the mean do?

# %%
ranges(
    "neither",
    "dropout",
    "smoothing",
    "dropout and smoothing",
    "480 updates",
    "mean of five",
)

# %% [markdown]
# The first four have 150 pairs of the translation, each seen 67 times: text to learn by heart. Dropout halves the loss
# on unseen pairs, and each of its seeds has more right subwords than each without it (in the paper's row D, no dropout
# costs 1.2 BLEU). Smoothing does what the paper says: the loss, which is the logarithm of perplexity, gets worse in
# each seed, and more subwords are right on average (one seed is within the range of "neither"). Both together have the
# most right subwords; the lowest loss is dropout's alone. The captions of table 3, seen three times, had no use for
# dropout.
#
# The last two are the translation with all its text after 480 updates: the last weights, and the mean of five
# checkpoints, ten updates apart. The mean has the lower loss with 3 of 3 seeds; nearly all subwords are right before
# and after.
#
# ## What trains and judges


# %%
def task(name):
    """The pairs of a task: to train with, and to judge by."""
    if "German" in name:
        return (train[:150] if "150" in name else train), valid
    chance, turn = random.Random(2), -1 if name == "reverse" else 1
    lines, sizes = [], {"lengths": (5, 15), "longer": (17, 17)}
    for _ in range(4100):
        low, high = sizes.get(name, (0, 0))
        n = chance.randint(low, high) if high else 10
        lines.append([chance.randint(4, 13) for _ in range(n)])
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
    with torch.no_grad():
        total, n = loss_of(model, make_batch(pairs), smoothing=0.0)
    return total.item() / n, sum(same) / len(same)


def experiment(
    seed=1, name="copy", change=None, sizes=(), rate=paper_rate,
    updates=250, smoothing=0.0, averaged=False,
):  # fmt: skip
    """Train a model. Returns its loss, its share of right subwords,
    and for "lengths" that of right lines of 17 numbers."""
    pairs, unseen = task(name)
    C, D, tokens = 14, 32, 704
    if "German" in name:
        C, D, tokens = len(subwords), 64, 1024
    usual = {"D": D, "F": 2 * D, "H": 4, "N": 1, "dropout": 0.0}
    torch.manual_seed(seed)
    model = Transformer(C, **usual | dict(sizes))
    if change:
        change(model)
    kept, rate = [], functools.partial(rate, D=model.D)
    knobs = pairs, updates, tokens, rate, smoothing, seed
    for step, _ in training(model, *knobs):
        if averaged and step > updates - 50 and step % 10 == 0:
            state = model.state_dict().items()
            kept.append({key: w.clone() for key, w in state})
    if averaged:
        model.load_state_dict(mean_weights(kept))
    if name == "lengths":
        longer, _ = task("longer")
        return *judged(model, unseen), right(model, longer[:50])
    return judged(model, unseen)


def at(**options):
    return functools.partial(paper_rate, **options)


REVERSE = {"name": "reverse"}
SLOW = {"rate": at(factor=0.1), "updates": 500}
ROOT = {"sizes": {"H": 1, "D": 64}}
SOME = {"name": "German", "updates": 150}
DEEP = {"sizes": {"N": 6}, "updates": 200, "rate": at(factor=0.2)}
FEW = {"name": "150 German", "updates": 200}
DROP, SMOOTH = {"sizes": {"dropout": 0.1}}, {"smoothing": 0.1}
LONG = SOME | DROP | SMOOTH | {"updates": 480}
# a name, and what changes: from copy, 250 updates, 1 layer, 4 heads
EXPERIMENTS = {
    "no cross-attention": {"change": no_cross},
    "no positions": {"change": no_positions},
    "with both": {},
    "no positions, reverse": REVERSE | {"change": no_positions},
    "with both, reverse": REVERSE,
    "no mask": {"change": no_mask},
    "learned": {"change": learned_positions},
    "waves, small rate": SLOW,
    "learned, small rate": SLOW | {"change": learned_positions},
    "no root": ROOT | {"change": no_root},
    "root": ROOT,
    "one head": SOME | {"sizes": {"H": 1}},
    "four heads": SOME,
    "no sum": DEEP | {"change": no_sum},
    "no norm": DEEP | {"change": no_norm},
    "post": DEEP,
    "post, 400 updates": DEEP | {"updates": 400},
    "pre": DEEP | {"sizes": {"N": 6, "pre": True}},
    "no warm-up": {"sizes": {"N": 2}, "rate": at(first=100)},
    "warm-up": {"sizes": {"N": 2}},
    "neither": FEW,
    "dropout": FEW | DROP,
    "smoothing": FEW | SMOOTH,
    "dropout and smoothing": FEW | DROP | SMOOTH,
    "480 updates": LONG,
    "mean of five": LONG | {"averaged": True},
}


def measure(names):
    """The results of experiments by name, with three seeds each."""
    return {
        name: [
            experiment(seed, **EXPERIMENTS[name]) for seed in (1, 2, 3)
        ]
        for name in names
    }


# %% [markdown]
# What they returned was stored, since all of it takes about twenty minutes of one core; `measure(["no mask"])` measures
# anew.
#
# <a id="gpt"></a>
#
# # Part 5: this is a GPT
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


SERIES = {"GPT-2": (768, 12, 12), "GPT-2 XL": (1600, 25, 48)}
SERIES["GPT-3"] = (12288, 96, 96)  # D, H, N
with torch.device("meta"):  # which counts without memory
    for name, (width, H, N) in SERIES.items():
        giant = LanguageModel(50257, width, 4 * width, H, N)
        print(f"{name:8} {count(giant)}")

# %% [markdown]
# **This is a GPT, and this is its size**: 0.124, 1.556 and 174.6 billion numbers, within half a percent of those
# released (Radford et al. 2019, Brown et al. 2020; theirs are pre-norm, with learned positions, and a smoother curve
# than $\max(0, x)$). Ours learns the English half of our text, as pairs without a source. Each subword is drawn by its
# probability; the *temperature* divides the scores: near 0 the likeliest is taken, above 1 others come more often.


# %% tags=["long"]
@torch.no_grad()
def sample(model, temperature=1.0, limit=40):
    """A random text, each subword drawn by its probability."""
    model.eval()
    ids = [BOS]
    while ids[-1] != EOS and len(ids) <= limit:
        scores = model(None, torch.tensor([ids]))[0, -1]
        p = softmax(scores / temperature)
        ids.append(torch.multinomial(p, 1).item())  # drawn by p
    return text_of([i for i in ids if i not in (BOS, EOS)])


torch.manual_seed(1)
speaker = LanguageModel(len(subwords), **SIZES)
print(0, sample(speaker)[:60])
english = [([], target) for _, target in train]
for step, loss in training(speaker, english, 300, 1024, text_rate):
    if step % 100 == 0:
        print(f"{step} {loss:.2f} {sample(speaker)}")
known_lines = {line for _, line in train_text}
for temperature in (0.2, 1.0, 1.5):
    drawn = [sample(speaker, temperature) for _ in range(50)]
    old = sum(line in known_lines for line in drawn)
    print(f"{temperature}: {old} of 50 are in the text;", drawn[0][:60])

# %% [markdown]
# At 0.2 and 1.0 it does not recite: nearly all are new. At 1.5 it no longer writes sentences. What stands between
# this and an assistant is not another architecture. *Pre-training*: the same loss on trillions of subwords.
# *Instruction tuning*: the same loss on questions with good answers. *Preferences*: of two answers of its own the one
# that people like better is made likelier (Ouyang et al. 2022).
#
# ## What has changed since 2017
#
# Six pieces are different in most models today. Each is a few lines, like those of part 4:
#
# - **the norm before the sub-layer**, measured above (Xiong et al. 2020);
# - **RMSNorm**: no mean and no shift, only division by the root of the mean square (Zhang and Sennrich 2019);
# - **SwiGLU**: the inner vector is the product of two maps, one through $x / (1 + e^{-x})$; that is three matrices
#   instead of two, so each is a third narrower (Shazeer 2020);
# - **rotary positions**: nothing is added to embeddings; in each head, pairs of entries of queries and keys are turned
#   by an angle that grows with the position, so a score depends on how far two places are from each other (Su et al.
#   2021);
# - **one key head**: the heads share keys and values, all of them (Shazeer 2019) or in groups (Ainslie et al. 2023);
# - **a cache**: while a text is written, keys and values of earlier positions are kept; no later word changes them,
#   since the mask hides it.


# %%
class RMSNorm(nn.Module):
    def __init__(self, D):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(D))

    def forward(self, x):
        square = (x**2).mean(-1, keepdim=True)
        return self.scale * x / torch.sqrt(square + 1e-5)


class SwiGLU(nn.Module):
    def __init__(self, D, F):
        super().__init__()
        F = 2 * F // 3
        self.inner, self.outer = linear(D, F), linear(F, D)
        self.gate = linear(D, F)

    def forward(self, x):
        gate = self.gate(x)
        return self.outer(self.inner(x) * gate * torch.sigmoid(gate))


def rms_norms(model):
    change_norms(model, RMSNorm)


def swiglu(model):
    for layer in [*model.encoder, *model.decoder]:
        layer.feed_forward = SwiGLU(model.D, 2 * model.D)


def turned(y, H):  # (B, T, D): pairs of entries as points, turned
    points = y.unflatten(2, (H, -1, 2)).transpose(1, 2)
    a, b = points[..., 0], points[..., 1]  # (B, H, T, D/H/2)
    waves = sinusoids(y.shape[1], y.shape[2] // H)
    sin, cos = waves[:, ::2], waves[:, 1::2]  # (T, D/H/2)
    pairs = torch.stack((a * cos - b * sin, a * sin + b * cos), -1)
    return pairs.transpose(1, 2).flatten(2)


def rotary(model):
    no_positions(model)
    change_heads(model, ["query", "key"], turned)


def share_keys(model):
    for part in model.modules():
        if isinstance(part, MultiHead):
            part.key = linear(model.D, model.D // part.H)
            part.value = linear(model.D, model.D // part.H)
    change_heads(
        model, ["key", "value"], lambda y, H: torch.tile(y, (H,))
    )


def all_of_them(model):
    for change in (rms_norms, swiglu, share_keys, rotary):
        change(model)


PRE = {"sizes": {"pre": True}}
LENGTHS = {"name": "lengths", "updates": 400}
TODAY = {
    "2017": {},
    "pre-norm": PRE,
    "RMSNorm": {"change": rms_norms},
    "SwiGLU": {"change": swiglu},
    "rotary": {"change": rotary},
    "one key head": {"change": share_keys},
    "all five": PRE | {"change": all_of_them},
}
for today, options in TODAY.items():
    EXPERIMENTS[f"{today}, copy"] = LENGTHS | options
    EXPERIMENTS[f"{today}, German"] = SOME | options

# %% [markdown]
# The tasks: the translation after 150 updates, and copying of 5 to 15 numbers, 400 updates, with a third question: how
# many of 50 lines of 17 numbers, longer than any that training has shown, are copied without an error?

# %%
print("                5 to 15 numbers   17 numbers    German")
print("                 loss   right     right lines   loss   right")
for kind in TODAY:
    row = [*np.mean(measured[f"{kind}, copy"], 0)]
    row += [*np.mean(measured[f"{kind}, German"], 0)]
    line = "{:14} {:6.3f} {:7.0%} {:15.0%} {:6.3f} {:7.0%}"
    print(line.format(kind, *row))

# %%
ranges(*(f"{kind}, German" for kind in TODAY))

# %% [markdown]
# The cache, in a model of a GPT's form but small: 200 subwords are written without and with it, then the same with keys
# and values that eight heads share. The gap is the largest difference between the last scores without and with it.


# %% tags=["long"]
def keep_keys(model):
    """From now on the model gets new ids only, of one text."""

    def keep(part, inputs, new):
        part.kept = torch.cat((part.kept, new), 1)
        return part.kept

    for layer in model.layers:
        for part in (layer.attention.key, layer.attention.value):
            part.kept = torch.zeros(1, 0, part.out_features)
            part.register_forward_hook(keep, prepend=True)  # runs first
    key = model.layers[0].attention.key
    model.embedding.positions = lambda T, D: sinusoids(
        key.kept.shape[1] + T, D
    )[-T:]


@torch.no_grad()
def write(model, cached):
    """Write 200 subwords, print the time. Returns the last scores."""
    model.eval()
    ids, start = [BOS], time.process_time()
    for _ in range(200):
        new = ids[-1:] if cached else ids
        scores = model(None, torch.tensor([new]))[0, -1]
        ids.append(scores.argmax().item())
    print(f"{time.process_time() - start:.2f} s", end=", ")
    return scores


for change in (lambda model: None, share_keys):
    torch.manual_seed(1)
    writer = LanguageModel(1000, D=256, F=1024, H=8, N=4)
    change(writer)
    without = write(writer, cached=False)
    keep_keys(writer)
    gap = (without - write(writer, cached=True)).abs().max()
    key = writer.layers[0].attention.key
    print(f"{2 * 4 * key.kept.numel():,} numbers kept, gap {gap:.0e}")

# %% [markdown]
# **What helps here**: rotary positions. With each of three seeds they copy 50 of 50 lines that are longer than any in
# training, where no seed of the others with waves copies more than three, and have a lower loss in the translation
# than the model of 2017. Pre-norm and RMSNorm have more right subwords on average (not with each seed). **What helps
# only at size**: SwiGLU has about as many right subwords as 2017, and a higher loss on average. One head for keys and
# values is worse on average; it is there for the cache, which it makes eight times smaller above. The cache pays with
# length: without it, word 200 costs 200 positions, with it one. RMSNorm saves operations, SwiGLU gains in large models.
#
# # Exercises
#
# **1.** Let the mask show a single position of the future: `tril(1)`. What do the loss and the answers of the copy task
# do? Guess, measure with `experiment(change=...)`, and compare with "What does the mask prevent?"
#
# **2.** The untrained model of part 1 said 4 4 4 4. Why does a wide untrained model of two layers repeat what it
# read, one of six layers not, and what has that to do with the size of the table's entries?

# %% [markdown] tags=["answer"]
# The residual path carries a copy of the input from the embedding to the last state, and that state is multiplied by
# the same table. So with two layers the row of the subword that was just read scores highest. Each norm behind a sum
# makes the copy smaller: after six layers all positions have nearly the same state, and a few subwords win whatever
# is read, as in the narrow model of part 1. With entries of size 1 instead of $1 / \sqrt{D}$, the loss is ten or
# twenty times that of a blind guess among 1,000, which costs 6.9. Training must first unlearn it:

# %% tags=["answer", "long"]
random_ids = torch.randint(4, 1000, (4, 10))
before, correct = random_ids[:, :-1].flatten(), random_ids[:, 1:]
for N, scale in ((2, 1), (2, 512**0.5), (6, 1), (6, 512**0.5)):
    torch.manual_seed(1)
    large = Transformer(1000, N=N).eval()
    with torch.no_grad():
        large.embedding.table *= scale
        all_scores = large(random_ids, random_ids)[:, :-1].flatten(0, 1)
    just_read = all_scores[torch.arange(len(before)), before].mean()
    loss = cross_entropy(
        all_scores, smoothed(correct.flatten(), 1000, 0)
    )
    print(f"{N} layers: just read {just_read:.1f},", end=" ")
    print(f"spread of all {all_scores.std():.1f},", end=" ")
    print(f"loss {loss / len(before):.1f}")

# %% [markdown]
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
# | the gradient of the loss is made in the forward pass, 512 subwords at a time | [`training/chunked_loss.py`](../transformer/training/chunked_loss.py) | the scores of all subwords are never in memory |
# | softmax in place, dropout from 16 random bits, $\max(0, x)$ and dropout in one pass | [`model/cpu.py`](../transformer/model/cpu.py) | copies and random numbers, on processors |
# | an update is cut into parts, which are dealt to devices | [`training/batches.py`](../transformer/training/batches.py) | memory; time on several devices, with the same sums |
# | merges by subword-nmt, which keeps its counts up to date | [`text/bpe.py`](../transformer/text/bpe.py) | counting anew for each merge |
#
# [benchmarks/README.md](../benchmarks/README.md) has what that is in seconds beside other programs: 11.6 times The
# Annotated Transformer's subwords a second for a small model in float32, 5.9 times for the paper's base.
#
# Of the paper, English constituency parsing (section 6.3) is left out: another task with another corpus.
#
# **References.** [Ainslie et al. 2023](https://arxiv.org/abs/2305.13245), grouped queries · [Ba et al.
# 2016](https://arxiv.org/abs/1607.06450), layer norm · [Bahdanau et al. 2015](https://arxiv.org/abs/1409.0473),
# attention · [Brown et al. 2020](https://arxiv.org/abs/2005.14165), GPT-3 · [Elliott et al.
# 2016](https://arxiv.org/abs/1605.00459), Multi30k · [Gehring et al. 2017](https://arxiv.org/abs/1705.03122), ConvS2S
# · [Glorot and Bengio 2010](https://proceedings.mlr.press/v9/glorot10a.html) · [He et al.
# 2016](https://arxiv.org/abs/1512.03385), residual connections · [Jordan et al.
# 2024](https://kellerjordan.github.io/posts/muon/), Muon · [Kalchbrenner et al.
# 2016](https://arxiv.org/abs/1610.10099), ByteNet · [Kingma and Ba 2015](https://arxiv.org/abs/1412.6980), Adam ·
# [Ouyang et al. 2022](https://arxiv.org/abs/2203.02155), preferences · [Papineni et al.
# 2002](https://aclanthology.org/P02-1040/), BLEU · [Press and Wolf 2017](https://arxiv.org/abs/1608.05859), the
# shared table · [Radford et al.
# 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf), GPT-2
# · [Sennrich et al. 2016](https://arxiv.org/abs/1508.07909), byte pairs · [Shazeer
# 2019](https://arxiv.org/abs/1911.02150), one key head, [2020](https://arxiv.org/abs/2002.05202), SwiGLU · [Srivastava
# et al. 2014](https://jmlr.org/papers/v15/srivastava14a.html), dropout · [Su et al. 2021](https://arxiv.org/abs/2104.09864),
# rotary positions · [Szegedy et al. 2016](https://arxiv.org/abs/1512.00567), label smoothing · [Wu et al.
# 2016](https://arxiv.org/abs/1609.08144), GNMT · [Xiong et al. 2020](https://arxiv.org/abs/2002.04745), pre and post
# · [Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467), RMSNorm
#
# **What made these outputs** (rounding differs between processors and grows in training: losses of single batches then
# differ by a few percent, and single sentences of part 3; the first 50 updates of the copy task agree to four digits):

# %%
print(
    "torch", torch.__version__, torch.backends.cpu.get_cpu_capability()
)

# %% [markdown]
# # What comes next
#
# **Train your own**: put two files of sentences into a folder, name it in `params.yaml`, type `make run`
# ([README](../README.md)); [params.yaml](../params.yaml) has a knob for each choice of this page.
# [training.md](training.md), [translating.md](translating.md) and [library.md](library.md) go on from there.

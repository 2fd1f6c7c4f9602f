# pyright: reportMissingImports=false
"""What JoeyNMT does to text before a training, by its own functions: build tokenizers, read, cut, build vocabularies.

    python -m benchmarks.joeynmt_prepare FOLDER CODES       # FOLDER has train.src and train.tgt; CODES: merges

Its script build_vocab.py, which is not in its package, calls these functions after subword-nmt has learned the merges.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

from benchmarks.stubs import stub_if_missing


def main() -> None:
    for module in ("torch.utils.tensorboard", "datasets", "sacremoses"):
        stub_if_missing(module)
    from joeynmt.datasets import build_dataset
    from joeynmt.tokenizers import build_tokenizer
    from joeynmt.vocabulary import build_vocab

    folder, codes = sys.argv[1:]
    side = {"level": "bpe", "tokenizer_type": "subword-nmt", "max_length": 100, "tokenizer_cfg": {"codes": codes}}
    names = SimpleNamespace(
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        sep_token=None,
        unk_id=0,
        pad_id=1,
        bos_id=2,
        eos_id=3,
        lang_tags=[],
    )
    cfg = {"src": {"lang": "src", **side}, "trg": {"lang": "tgt", **side}, "special_symbols": names}
    dataset = build_dataset("plain", f"{folder}/train", "src", "tgt", "train", build_tokenizer(cfg))
    for vocabulary in build_vocab(cfg, dataset):
        print(f"{len(vocabulary):,} subwords")


if __name__ == "__main__":
    main()

"""Stage tokenise: split lines into tokens by spaCy, without loss (transformer/text/words.py).

Reads   data/raw
Writes  data/tokens/{train,valid}.{src,tgt}: tokens separated by one space; text.json: languages and case. Test sets
        are not needed before translate, so one more of them reruns no stage from learn_bpe to average
Params  source, target, lowercase, lowercase_source
"""

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, require, run
from transformer.files import read_lines, whole_folder, write_json, write_lines
from transformer.text.words import Side


def main() -> None:
    paths = arguments(__doc__, raw="data/raw", tokens="data/tokens")
    params = Params.load(paths.params)
    require(paths.raw)
    with whole_folder(paths.tokens) as folder:
        text = {"source": params.source, "target": params.target, "lowercase": params.lowercase,
                "lowercase_source": params.lowercase or params.lowercase_source}  # fmt: skip
        for suffix, side in zip(("src", "tgt"), Side.of(text), strict=True):
            for split in ("train", "valid"):
                lines = read_lines(paths.raw / f"{split}.{suffix}")
                tokens = (" ".join(side.tokens(line)) for line in lines)
                write_lines(folder / f"{split}.{suffix}", tokens)
        write_json(folder / "text.json", text)


if __name__ == "__main__":
    run(main)

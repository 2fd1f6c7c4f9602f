"""The process of another program for benchmarks/startup.py: it translates each line that it reads.

python -m benchmarks.startup_worker PROGRAM MODEL
"""

import json
import sys
from pathlib import Path

STEPS = 8  # subwords of a translation by a model with random weights


def translate_lines(program: str, model: Path) -> None:
    """Print a line for each line of subwords that is read. Only the program and what it needs is imported."""
    if program == "ctranslate2":
        import ctranslate2

        translator = ctranslate2.Translator(str(model), intra_threads=1)
        for line in sys.stdin:
            (result,) = translator.translate_batch([line.split()], beam_size=4)
            print(*result.hypotheses[0], flush=True)
        return
    import torch

    from benchmarks.decoders import KINDS, Task
    from benchmarks.flops import SIZES

    vocabulary = json.loads((model / "shared_vocabulary.json").read_text(encoding="utf-8"))
    task = Task(SIZES["tiny"], len(vocabulary), 4, 1, STEPS, "float32", torch.device("cpu"))
    peer = KINDS[program](task)
    for line in sys.stdin:
        peer.translate([[vocabulary.index(word) for word in line.split()]])
        print(flush=True)


if __name__ == "__main__":
    translate_lines(sys.argv[1], Path(sys.argv[2]))

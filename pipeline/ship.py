"""Stage ship: put the model and the scores of its test set into one folder, the one to take away.

Reads   data/averaged; reports/scores.json, reports/signatures.json; data/ids/corpus.json: the number of training pairs
Writes  data/model: the files of data/averaged, with the scores in model.json
Params  test_sets: the first one gives the scores
"""

import shutil

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, require, run
from transformer.files import read_json, whole_folder, write_json
from transformer.model_folder import WEIGHTS, files_of, write_sums
from transformer.verdict import shipped_scores, verdict


def main() -> None:
    paths = arguments(
        __doc__,
        averaged="data/averaged",
        ids="data/ids",
        scores="reports/scores.json",
        signatures="reports/signatures.json",
        model="data/model",
    )
    params = Params.load(paths.params)
    require(paths.averaged, paths.ids, paths.scores, paths.signatures)
    description, corpus, scores, signatures = (
        read_json(path)
        for path in (paths.averaged / "model.json", paths.ids / "corpus.json", paths.scores, paths.signatures)
    )
    description["train_pairs"] = corpus["train_pairs"]
    description["scores"] = shipped_scores(params.test_sets.split()[0], scores, signatures)
    with whole_folder(paths.model) as folder:
        for file in files_of(paths.averaged):
            shutil.copyfile(file, folder / file.name)
        write_json(folder / "model.json", description)
        write_sums(folder, folder / WEIGHTS)
    print(f"{paths.model}: {verdict(description['scores'])}")


if __name__ == "__main__":
    run(main)

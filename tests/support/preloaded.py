"""What programs need that run in copies of the fork server: imported once, before any thread is started."""

import gc
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
APART = ("train", "back_translate", "__init__", "__main__")  # their copies could compute no gradients
DVC = "dvc.cli.parser dvc.repo dvc.repo.reproduce dvc.stage.run dvc.scm dvc.dirs dvc.cachemgr dvc.data_cloud"
DVC += " dvc.lock dvc.rwlock dvc.render dvc_render.vega networkx dulwich.index pygit2 rich.progress ruamel.yaml"

for name in (*DVC.split(), "transformer.inference.translator", "pipeline.tracking.store"):
    import_module(name)
for path in sorted((ROOT / "pipeline").glob("*.py")):
    if path.stem not in APART:
        import_module(f"pipeline.{path.stem}")
gc.freeze()

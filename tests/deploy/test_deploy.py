"""What deploy/ has for clusters is well-formed."""

from __future__ import annotations

import os
import subprocess

import pytest
from support.tiny import ROOT


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/slurm").iterdir()), ids=lambda path: path.name)
def test_a_slurm_script_is_well_formed(path):
    assert subprocess.run(["bash", "-n", path]).returncode == 0
    assert os.access(path, os.X_OK)

"""The software and hardware that can change a digit of a training's result: versions, processor, devices."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch

from transformer.model.cpu import multiplies_bfloat16

PACKAGES = ("ctranslate2", "numpy", "sacrebleu", "safetensors", "spacy", "subword-nmt", "torch", "torchtext")


def environment(device: torch.device, devices: int, sharded: bool) -> dict[str, str | int]:
    """The contents of reports/environment.json, name -> value. devices: how many devices like `device` are used.

    sharded: whether each device holds a share of the weights; there is a fact `sharding` only then.
    """
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    system = {"system": platform.system(), "machine": platform.machine(), "python": platform.python_version()}
    return {
        **system,
        "cpu": processor(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "device": kind,
        "devices": devices,
        "instructions": instructions(),
        "bfloat16": "yes" if multiplies_bfloat16(device) else "no",
        **({"sharding": "full"} if sharded else {}),
        **{name: version(name) for name in PACKAGES},
    }


def instructions() -> str:
    """The processor's instructions that torch computes with; where oneDNN may use fewer than it has, also which."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA")
    return torch.backends.cpu.get_cpu_capability() + (f", oneDNN {limit}" if limit else "")


def processor() -> str:
    """The processor's model, from /proc/cpuinfo on Linux; elsewhere Python's, which may be the architecture only."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").split("\n") if cpuinfo.is_file() else []
    facts = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    names = {key.strip(): value.strip() for key, value in facts.items()}
    family = "/".join(names[key] for key in ("cpu family", "model", "stepping") if key in names)
    return f"{names['model name']} {family}".strip() if "model name" in names else platform.processor()

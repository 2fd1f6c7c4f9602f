"""A GPU for machines without one: its tensors lie on the CPU and say that they do not.

What CUDA refuses, an operation of tensors on two devices, is refused. What makes the host wait for a GPU is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

GPU, CPU = torch.device("cuda:0"), torch.device("cpu")
COPIES = ("aten::_to_copy", "aten::copy_")  # may have tensors of both
WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal")  # their results are needed on the host


class OnGpu(Tensor):
    """A tensor on the pretended GPU. Only Python is told so: for what torch does in C++ it is one on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    waits: ClassVar[Counter[str]] = Counter()
    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> OnGpu:
        self = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype, device=CPU
        )
        self.held = held
        return self

    def __repr__(self) -> str:
        return f"OnGpu({self.held})"

    @property
    def device(self) -> torch.device:
        return GPU

    @property
    def is_cuda(self) -> bool:
        return True

    def to(self, *args, copy: bool = False, **kwargs) -> Tensor:
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or device.type == "cuda":
            return super().to(dtype or self.dtype, copy=copy)
        self.waits["to the host"] += not non_blocking
        return self.held.detach().to(dtype or self.dtype, copy=True)

    def cpu(self) -> Tensor:
        return self.to(CPU)

    def tolist(self) -> list:
        return self.cpu().tolist()

    def numpy(self):
        raise TypeError("this tensor is on a GPU")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return computed(func, args, kwargs or {})


class PretendedGpu(TorchDispatchMode):
    """Lets also operations without a tensor, which make one, know the GPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return computed(func, args, kwargs or {})


def computed(operation, arguments: tuple, named: dict):
    """An operation on what the tensors hold; what comes of a GPU's tensors is a GPU's."""
    name, leaves = operation._schema.name, tree_leaves((arguments, named))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    ours = [tensor for tensor in tensors if isinstance(tensor, OnGpu)]
    if ours and any(tensor.ndim for tensor in tensors if not isinstance(tensor, OnGpu)) and name not in COPIES:
        raise RuntimeError(f"{name} of tensors on two devices")
    if ours and name in WAITS:
        OnGpu.waits[name] += 1
    asked = any(isinstance(leaf, torch.device) and leaf.type == "cuda" for leaf in leaves)
    on_gpu = isinstance(tensors[0], OnGpu) if name == "aten::copy_" else bool(ours) or asked
    known = {id(tensor.held if isinstance(tensor, OnGpu) else tensor): tensor for tensor in tensors}

    def taken(leaf):
        return leaf.held if isinstance(leaf, OnGpu) else CPU if isinstance(leaf, torch.device) else leaf

    def put(leaf):
        if id(leaf) in known or not (on_gpu and isinstance(leaf, Tensor)):
            return known.get(id(leaf), leaf)
        return OnGpu(leaf)

    return tree_map(put, operation(*tree_map(taken, arguments), **tree_map(taken, named)))


@contextmanager
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Let torch take GPU for a device; gives the waits for it, counted by kind."""
    by_device = torch._C._group_tensors_by_device_and_dtype

    def grouped(*given):
        return {(tensors[0][0].device, kind): (tensors, places)
                for (_, kind), (tensors, places) in by_device(*given).items()}  # fmt: skip

    monkeypatch.setattr(torch._C, "_group_tensors_by_device_and_dtype", grouped)  # it asks in C++
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch._C, "_InferenceMode", lambda mode: torch.no_grad())  # it would skip the dispatch
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: self)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    torch._C._set_only_lift_cpu_tensors(True)
    OnGpu.waits.clear()
    try:
        with PretendedGpu():
            yield OnGpu.waits
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
        torch.__future__.set_overwrite_module_params_on_conversion(False)

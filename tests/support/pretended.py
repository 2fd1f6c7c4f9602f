"""A pretended GPU for tests on a machine without one: its tensors are on the CPU, and report the device cuda:0.

An operation on tensors of two devices raises an error, as with CUDA. Operations for which the host would wait for a GPU
are counted.
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
COPIES = ("aten::_to_copy", "aten::copy_")  # operations that may have tensors of both devices
WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal")  # operations whose result the host needs


class OnGpu(Tensor):
    """A tensor on the pretended GPU. Its device is cuda:0 for Python code, and the CPU for the C++ code of torch.

    values: the tensor on the CPU with its numbers. waits: operation -> how often the host would have waited for a GPU.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    waits: ClassVar[Counter[str]] = Counter()
    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> OnGpu:
        self = Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=CPU,
        )
        self.values = values
        return self

    def __repr__(self) -> str:
        return f"OnGpu({self.values})"

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
        return self.values.detach().to(dtype or self.dtype, copy=True)

    def cpu(self) -> Tensor:
        return self.to(CPU)

    def tolist(self) -> list:
        return self.cpu().tolist()

    def numpy(self):
        raise TypeError("this tensor is on a GPU")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run_operation(func, args, kwargs or {})


class PretendedGpu(TorchDispatchMode):
    """Routes operations without tensor arguments, which create tensors, through run_operation too."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run_operation(func, args, kwargs or {})


def run_operation(operation, arguments: tuple, named: dict):
    """Compute an operation on the CPU. Its results are on the pretended GPU if a tensor or the device argument is."""
    name, leaves = operation._schema.name, tree_leaves((arguments, named))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    gpu_tensors = [tensor for tensor in tensors if isinstance(tensor, OnGpu)]
    if gpu_tensors and any(tensor.ndim for tensor in tensors if not isinstance(tensor, OnGpu)) and name not in COPIES:
        raise RuntimeError(f"{name} of tensors on two devices")
    if gpu_tensors and name in WAITS:
        OnGpu.waits[name] += 1
    requested = any(isinstance(leaf, torch.device) and leaf.type == "cuda" for leaf in leaves)
    on_gpu = isinstance(tensors[0], OnGpu) if name == "aten::copy_" else bool(gpu_tensors) or requested
    known = {id(tensor.values if isinstance(tensor, OnGpu) else tensor): tensor for tensor in tensors}

    def unwrap(leaf):
        return leaf.values if isinstance(leaf, OnGpu) else CPU if isinstance(leaf, torch.device) else leaf

    def wrap(leaf):
        if id(leaf) in known or not (on_gpu and isinstance(leaf, Tensor)):
            return known.get(id(leaf), leaf)  # an operation in place returns its argument
        return OnGpu(leaf)

    return tree_map(wrap, operation(*tree_map(unwrap, arguments), **tree_map(unwrap, named)))


@contextmanager
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Make torch accept the device GPU. Yields OnGpu.waits, the counts of waits by operation."""
    by_device = torch._C._group_tensors_by_device_and_dtype

    def grouped(*tensor_lists):
        return {
            (tensors[0][0].device, kind): (tensors, places)
            for (_, kind), (tensors, places) in by_device(*tensor_lists).items()
        }

    monkeypatch.setattr(torch._C, "_group_tensors_by_device_and_dtype", grouped)  # it reads devices in C++
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch._C, "_InferenceMode", lambda mode: torch.no_grad())  # else __torch_dispatch__ is skipped
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

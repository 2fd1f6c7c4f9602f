"""Settings of the process that make training faster. A program chooses them; no class here changes them.

One more setting, how long idle threads spin, must be made before torch is loaded: see transformer/__init__.py.
"""

from __future__ import annotations

import ctypes

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt(3)


def prepare_process(deterministic: bool = False) -> None:
    """Set this process up for training. Call it once, before the first update.

    Freed memory is kept for the next batch, and attention on a GPU does not use cuDNN, which plans each new shape, so
    nearly each batch, for 20 to 40 ms. deterministic: use only operations that give the same bits each time.
    """
    keep_freed_memory()
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.use_deterministic_algorithms(deterministic)


def keep_freed_memory() -> None:
    """Make glibc keep the memory that this process frees. Other C libraries are not changed.

    By default glibc returns large blocks to the kernel and gets them back page by page, which takes 6 to 9% of a small
    model's training on two cores. Keeping them does not make the process grow: batches of one size need equal memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest value that all versions accept
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)

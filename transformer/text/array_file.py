"""An array on disk that is written piece by piece."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np


class ArrayFile(AbstractContextManager["ArrayFile"]):
    """A one-dimensional .npy file, written piece by piece. It has the bytes that numpy.save writes."""

    def __init__(self, path: Path, dtype: type[np.integer]):
        self._dtype, self._count = np.dtype(dtype), 0
        self._file = open(path, "wb")  # noqa: SIM115 (closed in __exit__)
        self._write_header()

    def add(self, numbers: np.ndarray) -> None:
        """Append numbers to the array."""
        self._file.write(np.ascontiguousarray(numbers, self._dtype).tobytes())
        self._count += len(numbers)

    def __exit__(self, *error: object) -> None:
        """Write the count of the numbers."""
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        """Write the header with the present count. NumPy pads it, so that it has the same size for any count."""
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._count,)}
        np.lib.format.write_array_header_1_0(self._file, header)

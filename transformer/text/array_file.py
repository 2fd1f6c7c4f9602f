"""An array on disk that is written piece by piece."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

NUMBERS_IN_MEMORY = 1_000_000  # of an array that is being written


class ArrayFile(AbstractContextManager["ArrayFile"]):
    """A one-dimensional .npy file, written piece by piece, in the bytes of numpy.save of the whole array.

    kind: i for int32, q for int64, as in the module array.
    """

    def __init__(self, path: Path, kind: str):
        self._numbers, self._count = array(kind), 0
        self._file = open(path, "wb")  # noqa: SIM115 (closed in __exit__)
        self._write_header()

    def add(self, numbers: Iterable[int]) -> None:
        """Append numbers to the array."""
        self._numbers.extend(numbers)
        if len(self._numbers) > NUMBERS_IN_MEMORY:
            self._flush()

    def __exit__(self, *error: object) -> None:
        """Write the rest of the numbers, and their count."""
        self._flush()
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _flush(self) -> None:
        self._file.write(np.asarray(self._numbers).tobytes())
        self._count += len(self._numbers)
        del self._numbers[:]

    def _write_header(self) -> None:
        """NumPy pads the header of an array, so that it has the same size for any number of rows."""
        kind = np.lib.format.dtype_to_descr(np.asarray(self._numbers).dtype)
        header = {"descr": kind, "fortran_order": False, "shape": (self._count,)}
        np.lib.format.write_array_header_1_0(self._file, header)

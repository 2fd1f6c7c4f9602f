"""Data inside a page: compressed, as text that templates/unpack.js.jinja unpacks."""

from __future__ import annotations

import base64
import zlib


def compress(data: bytes) -> str:
    """Bytes, compressed (zlib) and in base64: what a page unpacks by DecompressionStream("deflate")."""
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")

"""Ports and processes of the servers that commands start on this machine."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

HOST = "127.0.0.1"  # this machine, for servers that no other machine reaches


def open_port(host: str, port: int, command: str) -> socket.socket:
    """A socket that listens on a port. Raises ValueError for no port, or one that cannot be used.

    command: the command line without --port, for the message.
    """
    if not 0 < port < 2**16:
        raise ValueError(f"--port {port} is not a port number. Choose one from 1024 to 65535.")
    try:
        return socket.create_server((host, port))
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        again = f"{command} --port {port + 1 if port < 65535 else 1024}"
        raise ValueError(f"Port {port} of {host} cannot be used ({reason}). Use another one: `{again}`") from None


@contextmanager
def run_server(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen]:
    """Start a server, and end it when the block ends or is ended by Ctrl-C. options: of Popen."""
    server = subprocess.Popen(words, **options)
    try:
        yield server
    except KeyboardInterrupt:
        print()
    finally:
        server.terminate()
        server.wait()

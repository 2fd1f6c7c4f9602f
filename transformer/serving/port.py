"""The port that a server listens on."""

from __future__ import annotations

import errno
import socket

from transformer.files import Mistake

HOST = "127.0.0.1"  # this machine, for servers that no other machine reaches


def open_port(host: str, port: int) -> socket.socket:
    """A socket that listens on a port. Raises Mistake for no port, or one that cannot be used."""
    if not 0 < port < 2**16:
        raise Mistake(f"--port {port} is not a port number. Choose one from 1024 to 65535.")
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise Mistake(
                f"--host {host} is no address of this machine ({reason}). Leave it out to serve this machine alone, or "
                "use 0.0.0.0 to serve all that can reach it."
            ) from None
        raise Mistake(f"Port {port} of {host} cannot be used ({reason}). Choose another one with --port.") from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # which connections inherit: an answer is not held
    return listener

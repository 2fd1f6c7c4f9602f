"""Connections that end: one that sends no request for a while, or half of one, would be kept for ever."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

IDLE = 15  # seconds without a new request, from which a connection may be closed


class Connection(HttpToolsProtocol):
    """A connection that is closed if no new request began in IDLE seconds and none is worked on."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.next_look = self.loop.call_later(IDLE, self.close_if_idle, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.next_look.cancel()  # it would keep the connection, with what was read of its request
        super().connection_lost(exc)

    def close_if_idle(self, last: Any) -> None:
        """Close the connection if it works on no request, and has begun none since the last look: `last`."""
        if self.cycle is last and (last is None or last.response_complete):
            self.transport.close()
        else:
            self.next_look = self.loop.call_later(IDLE, self.close_if_idle, self.cycle)

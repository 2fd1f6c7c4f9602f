"""Connections that are closed when their client sends or reads nothing for a while: uvicorn would keep them."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE = 15  # seconds between two looks at a connection
READ = 1 << 14  # bytes at a time: h11 takes 0.1 s for so many, if they come in chunks of one byte


class Connection(H11Protocol):
    """A connection that is closed when two looks in a row find nothing new on it, and no request is worked on."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.max_size = READ
        self.next_look = self.loop.call_later(IDLE, self.close_if_idle, None, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        self.next_look.cancel()  # it would keep the connection, with what was read of its request
        super().connection_lost(exc)

    def close_if_idle(self, last: Any, unsent: int) -> None:
        """Close the connection if it is idle. last, unsent: its request and the bytes not sent, at the last look."""
        waiting, same = self.transport.get_write_buffer_size(), self.cycle is last
        if same and 0 < unsent <= waiting:
            self.transport.abort()  # the client does not read its answer
        elif same and not waiting and (last is None or last.response_complete):
            self.transport.close()
        else:
            self.next_look = self.loop.call_later(IDLE, self.close_if_idle, self.cycle, waiting)

"""A TCP proxy with moods: all traffic between the broker and its clients goes through it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self

_CHUNK_BYTES = 256 * 1024
_RESET = struct.pack("ii", 1, 0)
"""Linger for zero seconds: closing sends a reset instead of a farewell."""


class Proxy:
    """Listens on a free port of 127.0.0.1 until it is closed; `target` is a port there too."""

    def __init__(self) -> None:
        self.target = 0
        self.cuts = 0
        """connections that were open when they were cut"""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._flows: set[asyncio.StreamWriter] = set()
        self._delay_s = 0.0
        self._refuses = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._gate = self._call(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._listening.close()

    def cut(self) -> None:
        """Resets every open connection; new ones are welcome."""
        self._call(self._cut())

    def refuse(self) -> None:
        """Resets every connection, open or new."""
        self._refuses = True
        self.cut()

    def delay(self, seconds: float) -> None:
        """Everything arrives late, in both directions."""
        self._delay_s = seconds

    def swallow(self) -> None:
        """Connections stay open, and nothing arrives until `heal`: a network that has come apart."""
        self._loop.call_soon_threadsafe(self._gate.clear)

    def heal(self) -> None:
        """As if nothing had been."""
        self._delay_s, self._refuses = 0.0, False
        self._loop.call_soon_threadsafe(self._gate.set)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> asyncio.Event:
        self._server = await asyncio.start_server(self._accept, sock=self._listening)
        gate = asyncio.Event()
        gate.set()
        return gate

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _cut(self) -> None:
        self.cuts += len(self._flows) // 2
        for flow in list(self._flows):
            _reset(flow)

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self._refuses:
            _reset(client)
            return
        try:
            answers, broker = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            _reset(client)
            return
        flows = {client, broker}
        self._flows |= flows
        try:
            await asyncio.gather(self._pump(reader, broker), self._pump(answers, client))
        finally:
            self._flows -= flows

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(_CHUNK_BYTES):
                await self._gate.wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                sink.write(data)
                await sink.drain()
        sink.close()


def _reset(flow: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        flow.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    flow.transport.abort()

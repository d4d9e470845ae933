"""A proxy in front of a server that lets so many bytes a second through, in both directions."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

from tests.tier_servers import Server

_PIECE = 16 * 1024


class Throttle:
    """It listens on a port of its own, on a thread, because the bench and other tests have none."""

    def __init__(self, server: Server, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self.port = 0
        self._to = (server.address, server.port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._to)
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        except OSError:
            pass
        finally:
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_PIECE):
            await asyncio.sleep(len(piece) / self.bytes_per_second)
            writer.write(piece)
            await writer.drain()
        writer.close()

    def __enter__(self) -> Self:
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(start, self._loop).result(timeout=10)
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

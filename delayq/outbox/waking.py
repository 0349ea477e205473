"""How a relay waits for the next commit: PostgreSQL tells of it, by NOTIFY; others are polled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection

from delayq.outbox.relaying.notifications import CHANNEL, SLICE, wait_for_commit
from delayq.outbox.relaying.relay_steps import HEARTBEAT, POLL
from delayq.values.times import monotonic


def listens(dialect: Any) -> bool:
    """Return whether the driver of a database tells of commits."""
    return dialect.name == "postgresql" and dialect.driver in ("psycopg", "psycopg2", "psycopg_async", "asyncpg")


def wait(connection: Connection, seconds: float | None, stopped: threading.Event) -> None:
    """Wait until a commit, or for so long, or until stopped; None for as long as nothing happens."""
    if not listens(connection.dialect):
        stopped.wait(POLL if seconds is None else seconds)
        return
    raw: Any = connection.connection.driver_connection
    with _losing(connection):
        wait_for_commit(raw, HEARTBEAT if seconds is None else seconds, stopped)


@contextmanager
def _losing(connection: Any) -> Iterator[None]:
    """Raise an error of SQLAlchemy for one of the driver, with which SQLAlchemy has nothing to do."""
    try:
        yield
    except connection.dialect.loaded_dbapi.Error as error:
        raise DisconnectionError(str(error)) from error


class Waker:
    """The same for asyncio."""

    def __init__(self) -> None:
        """Wait for nothing yet."""
        self._event = asyncio.Event()
        self._raw: Any = None

    async def listen(self, connection: AsyncConnection) -> None:
        """Take note of what the connection is told."""
        if connection.dialect.driver == "asyncpg":
            raw: Any = (await connection.get_raw_connection()).driver_connection
            await raw.add_listener(CHANNEL, self.wake)
            raw.add_termination_listener(self.wake)

    def wake(self, *_: Any) -> None:
        """End the wait, whatever asyncpg has to say."""
        self._event.set()

    async def wait(self, connection: AsyncConnection, seconds: float | None, stopped: Callable[[], bool]) -> None:
        """Wait until a commit, or for so long, or until stopped; None for as long as nothing happens."""
        if not listens(connection.dialect):
            await self._wait(POLL if seconds is None else seconds)
        elif connection.dialect.driver == "asyncpg":
            await self._wait(HEARTBEAT if seconds is None else seconds)
        else:
            raw: Any = (await connection.get_raw_connection()).driver_connection
            end = monotonic() + (HEARTBEAT if seconds is None else seconds)
            with _losing(connection):
                while not stopped() and (left := end - monotonic()) > 0:
                    if [one async for one in raw.notifies(timeout=min(left, SLICE), stop_after=1)]:
                        return

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        self._event.clear()

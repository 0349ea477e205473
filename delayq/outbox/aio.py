"""The outbox for `AsyncSession`, `AsyncConnection` and `AsyncEngine`: the same functions, to be awaited."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar, Unpack

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session

from delayq._parity import mirrors
from delayq.errors import ConfigurationError, short_repr
from delayq.outbox import inbox, tables, upkeep, writing
from delayq.outbox.async_relay import AsyncOutboxRelay
from delayq.outbox.relay import relay as blocking_relay
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_base import DelayBase
from delayq.queue.sending.message_options import SendOptions
from delayq.values.times import Duration

T = TypeVar("T")
AsyncDatabase = AsyncConnection | AsyncSession | async_scoped_session[Any]
"""A connection of SQLAlchemy Core for asyncio, or a session of its ORM."""


def _checked(db: Any) -> Any:
    if isinstance(db, AsyncConnection | AsyncSession):
        return db
    if isinstance(db, async_scoped_session):
        return db()
    raise ConfigurationError(f"db must be an AsyncConnection or an AsyncSession, not {short_repr(db)}")


@mirrors(writing.send)
async def send(
    db: AsyncDatabase,
    queue: DelayBase[T, Any],
    payload: T,
    delay: Duration | None = None,
    *,
    at: datetime | None = None,
    retries: int | None = None,
    eager: bool = False,
    **options: Unpack[SendOptions],
) -> str:
    how: Any = {"at": at, "retries": retries, "eager": eager, **options}
    id: str = await _checked(db).run_sync(writing.send, queue, payload, delay, **how)
    return id


@mirrors(writing.cancel)
async def cancel(db: AsyncDatabase, queue: DelayBase[Any, Any], id: str) -> None:
    await _checked(db).run_sync(writing.cancel, queue, id)


@mirrors(writing.reschedule)
async def reschedule(
    db: AsyncDatabase,
    queue: DelayBase[Any, Any],
    id: str,
    delay: Duration | None = None,
    at: datetime | None = None,
) -> None:
    await _checked(db).run_sync(writing.reschedule, queue, id, delay, at)


@mirrors(inbox.once)
async def once(db: AsyncDatabase, message: Any) -> bool:
    return bool(await _checked(db).run_sync(inbox.once, message))


@mirrors(inbox.prune)
async def prune(db: AsyncDatabase, older: Duration) -> int:
    return int(await _checked(db).run_sync(inbox.prune, older))


@mirrors(upkeep.backlog)
async def backlog(db: AsyncDatabase) -> dict[str, upkeep.Backlog]:
    found: dict[str, upkeep.Backlog] = await _checked(db).run_sync(upkeep.backlog)
    return found


@mirrors(tables.create)
async def create(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(tables.create)


@mirrors(blocking_relay)
def relay(engine: AsyncEngine, *queues: AsyncDelayQueue[Any]) -> AsyncOutboxRelay:
    return AsyncOutboxRelay(engine, *queues)

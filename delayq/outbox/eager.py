"""Eager sends: the process that has committed does what a relay would do next."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.util import await_only

from delayq.errors import ConfigurationError
from delayq.outbox.relay import OutboxRelay
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_base import DelayBase
from delayq.safe_log import SafeLog

log = SafeLog("delayq.outbox")

_KEY = "delayq_outbox_eager"
_watched: WeakKeyDictionary[Session, bool] = WeakKeyDictionary()
"""The sessions whose transactions are watched."""


def relay_after_commit(session: Session, queue: DelayBase[Any, Any]) -> None:
    """OutboxRelay a batch to the queue after the commit of the transaction of a session; errors are left to relays."""
    is_async = session.get_bind().dialect.is_async
    if is_async is not isinstance(queue, AsyncDelayQueue):
        raise ConfigurationError("eager needs a DelayQueue with a Session, and an AsyncDelayQueue with an AsyncSession")
    session.info.setdefault(_KEY, {})[queue.prefix, queue.name] = queue
    if session not in _watched:
        _watched[session] = True
        event.listen(session, "after_commit", _committed)
        event.listen(session, "after_transaction_end", _ended)


def _committed(session: Session) -> None:
    waiting = session.info.get(_KEY)
    if waiting is not None and session.get_nested_transaction() is None:
        waiting["committed"] = True


def _ended(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is not None or (waiting := session.info.pop(_KEY, None)) is None:
        return
    if not waiting.pop("committed", False):
        return
    engine = session.get_bind()
    for queue in waiting.values():
        try:
            _relay(engine if isinstance(engine, Engine) else engine.engine, queue)
        except Exception as error:  # noqa: BLE001 - what was committed is not lost: a relay sends it
            log.warning("%s: nothing was sent right after the commit: %s", queue.name, error)


def _relay(engine: Engine, queue: Any) -> None:
    if isinstance(queue, AsyncDelayQueue):
        from delayq.outbox.async_relay import AsyncOutboxRelay

        await_only(AsyncOutboxRelay(AsyncEngine(engine), queue).run_batch())
    else:
        OutboxRelay(engine, queue).run_batch()

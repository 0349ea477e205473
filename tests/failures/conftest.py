"""A blocking or asyncio queue, as in the tests of behaviour."""

from __future__ import annotations

from tests.behaviour.conftest import busy, face, gate, open_queue, queue, url

__all__ = ["busy", "face", "gate", "open_queue", "queue", "url"]

"""A queue of either face, as the tests of behaviour have it."""

from __future__ import annotations

from tests.behaviour.conftest import busy, face, gate, open_queue, queue, url

__all__ = ["busy", "face", "gate", "open_queue", "queue", "url"]

"""The engines that can be put under torture, by name."""

from __future__ import annotations

from collections.abc import Mapping

from delayq.testing.torture.delay_engine import DelayEngine
from delayq.testing.torture.engine_interface import Engine
from delayq.testing.torture.streams.stream_engine import StreamEngine
from delayq.testing.torture.workqueue.workqueue_engine import WorkQueueEngine

ENGINES: Mapping[str, Engine] = {"delay": DelayEngine(), "streams": StreamEngine(), "workqueue": WorkQueueEngine()}

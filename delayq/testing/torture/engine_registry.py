"""The engines that can be put under torture, by name."""

from __future__ import annotations

from collections.abc import Mapping

from delayq.torture.delay import DelayEngine
from delayq.torture.engine import Engine
from delayq.torture.streams.engine import StreamEngine
from delayq.torture.workqueue.engine import WorkEngine

ENGINES: Mapping[str, Engine] = {"delay": DelayEngine(), "streams": StreamEngine(), "workqueue": WorkEngine()}

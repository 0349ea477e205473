"""Both executors under one blocking interface, so that one test body is run against either."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from delayq.broker.transport.executor import open_async_executor, open_executor
from delayq.options import QueueOptions, read_settings


class Blocking:
    """An `Executor`."""

    def __init__(self, options: Any, **settings: Any) -> None:
        self.core: Any = open_executor(options, read_settings(cast("QueueOptions", settings)))

    def call(self, request: Any) -> Any:
        return self.core.call(request)

    def perform(self, operation: Any) -> Any:
        return self.core.perform(operation)

    def run(self, requests: Sequence[Any], **options: Any) -> Any:
        return self.core.run(requests, **options)

    def run_together(self, *batches: Sequence[Any]) -> list[Any]:
        """Run several batches at a time."""
        with ThreadPoolExecutor(len(batches)) as threads:
            return list(threads.map(self.run, batches))

    def close(self) -> None:
        self.core.close()


class Asyncio(Blocking):
    """An `AsyncExecutor` with an event loop of its own."""

    def __init__(self, options: Any, **settings: Any) -> None:
        self.runner = asyncio.Runner()
        self.core = open_async_executor(options, read_settings(cast("QueueOptions", settings)))

    def call(self, request: Any) -> Any:
        return self.runner.run(self.core.call(request))

    def perform(self, operation: Any) -> Any:
        return self.runner.run(self.core.perform(operation))

    def run(self, requests: Sequence[Any], **options: Any) -> Any:
        return self.runner.run(self.core.run(requests, **options))

    def run_together(self, *batches: Sequence[Any]) -> list[Any]:
        async def together() -> list[Any]:
            return await asyncio.gather(*(self.core.run(batch) for batch in batches))

        return self.runner.run(together())

    def close(self) -> None:
        self.runner.run(self.core.close())
        self.runner.close()

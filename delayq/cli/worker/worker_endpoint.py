"""`delayq worker --http-port`: metrics and probes of the process, or of all the processes under a parent."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.cli.support.exit_codes import CommandError
from delayq.safe_log import SafeLog

if TYPE_CHECKING:
    from delayq.metrics.endpoint import Address
    from delayq.metrics.process_metrics import WorkerMonitor

log = SafeLog("delayq.metrics")


class HttpOptions(NamedTuple):
    """Where a worker is to serve metrics and probes, if at all."""

    port: int | None
    host: str
    socket: Path | None
    """That of a process under a parent, which serves the port."""

    @contextmanager
    def of_process(self) -> Iterator[WorkerMonitor | None]:
        """Serve those of this process; nothing without a port."""
        address: Address | None = self.socket or (None if self.port is None else (self.host, self.port))
        if address is None:
            yield None
            return
        from delayq.metrics.process_metrics import WorkerMonitor

        monitor = WorkerMonitor()
        with serving(address, monitor, dead=monitor.dead, unready=monitor.unready):
            yield monitor

    @contextmanager
    def of_parent(self) -> Iterator[Callable[[int], list[str]]]:
        """Serve those of the children; yields a function that returns the options of a child for its number."""
        if self.port is None:
            yield lambda _: []
            return
        from delayq.metrics.process_metrics import ProcessMetrics

        with tempfile.TemporaryDirectory(prefix="delayq-worker-") as name:  # which only this user may read
            folder = Path(name)
            processes = ProcessMetrics(folder)
            with serving((self.host, self.port), processes, dead=processes.dead, unready=processes.unready):
                yield lambda number: ["--http-socket", str(folder / str(number))]


@contextmanager
def serving(address: Address, collector: Any, **probes: Callable[[], str]) -> Iterator[None]:
    """Serve metrics and probes in the background; raise `CommandError` if the address cannot be used."""
    from delayq.metrics.endpoint import Endpoint

    try:
        endpoint = Endpoint(address, collector, **probes)
    except (OSError, ValueError) as error:  # a host that no name can be is a ValueError
        where = address if isinstance(address, Path) else f"{address[0]}:{address[1]}"
        raise CommandError(f"cannot listen on {where}: {getattr(error, 'strerror', None) or error}") from error
    endpoint.start()
    if not isinstance(address, Path):
        log.info("serving %s/metrics, /livez and /readyz", endpoint.url)
    try:
        yield
    finally:
        endpoint.close()

"""What every face of a queue stands on: its options, its tools, and how an operation is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from delayq.calls import Calls, preload
from delayq.codec import Codec, find_codec
from delayq.config import QueueOptions, find_url, read_settings
from delayq.doctor import OPENING, check, opening
from delayq.errors import DelayqError, ServerError, UnavailableError
from delayq.keys import Keys, check_name
from delayq.message import Tools
from delayq.operation import Operation, begun, together
from delayq.twins import twin

if TYPE_CHECKING:
    from delayq.executor import AsyncExecutor, Executor

T = TypeVar("T")
R = TypeVar("R")


class Face(Generic[T]):
    """The options and tools of one queue."""

    def __init__(self, name: str, payload_type: type[T] | None, options: QueueOptions) -> None:
        """Validate everything; nothing is sent to Redis."""
        self.name = self._checked(name)
        self.prefix = options.get("prefix", "delayq")
        self.settings = read_settings(options)
        self._options = options
        self._codec: Codec = find_codec(options.get("codec", "json"), payload_type)
        self._tools = Tools(self._make_calls(), self.settings, self._codec.decode)
        self._opened = False

    def __repr__(self) -> str:
        """Show the queue by name; the URL may hold a password."""
        return f"<{type(self).__name__} {self.name}>"

    def _checked(self, name: str) -> str:
        return check_name(name)

    def _make_calls(self) -> Calls:
        return Calls(Keys.of(self.prefix, self.name))

    @property
    def _is_embedded(self) -> bool:
        return "redis" not in self._options and find_url(self._options).startswith("memory://")

    def _loading(self) -> list[Any]:
        """Return the commands that load the scripts of a queue of this kind."""
        return list(preload())

    def _opening(self) -> list[Any]:
        requests: list[Any] = list(opening(self._tools.calls.keys, self.prefix, self.name))
        settings = self.settings
        if settings.events is not None or settings.dedupe_window is not None:
            window, most = settings.dedupe_window, settings.dedupe_max
            requests.append(self._tools.calls.configure(events=settings.events, dedupe_window=window, dedupe_max=most))
        return requests

    def _check(self, answers: list[Any]) -> None:
        for answer in answers:
            if isinstance(answer, UnavailableError) or (isinstance(answer, ServerError) and "NOAUTH" in str(answer)):
                raise answer
        if len(answers) > OPENING and isinstance(answers[OPENING], DelayqError):
            raise answers[OPENING]
        check(self.name, answers, embedded=self._is_embedded, strict=self.settings.strict)
        self._opened = True


class BlockingFace(Face[T]):
    """A face whose methods block."""

    _executor: Executor

    def __init__(self, name: str, payload_type: type[T] | None, options: QueueOptions) -> None:
        """Make the client; it connects when it is first used."""
        from delayq.executor import open_executor  # loads redis, which `import delayq` does not need

        super().__init__(name, payload_type, options)
        self._executor = open_executor(options, self.settings)

    def open(self) -> None:
        """Connect, check the server, make the queue known and switch what its options switch for all processes.

        The first call that writes does it by itself; done before, it is where trouble shows.
        """
        if not self._opened:
            self._check(self._executor.run(self._opening()))

    def preload(self) -> int:
        """Load every script of a queue of this kind into Redis, for users whose rights do not include it.

        Returns how many. They serve all such queues of the server, until it restarts. Harmless at any time.
        """
        return len(self._executor.perform(together(self._loading())))

    def _perform(self, operation: Operation[R], *, writes: bool = False) -> R:
        if not self._opened:
            operation, begins = begun(operation)
            if writes or begins:  # who only reads makes no queue known
                self.open()
        return self._executor.perform(operation)


class AsyncFace(Face[T]):
    """A face whose methods are awaited."""

    _executor: AsyncExecutor

    def __init__(self, name: str, payload_type: type[T] | None, options: QueueOptions) -> None:
        """Make the client; it connects when it is first used."""
        from delayq.executor import open_async_executor

        super().__init__(name, payload_type, options)
        self._executor = open_async_executor(options, self.settings)

    @twin(BlockingFace.open)
    async def open(self) -> None:
        if not self._opened:
            self._check(await self._executor.run(self._opening()))

    @twin(BlockingFace.preload)
    async def preload(self) -> int:
        return len(await self._executor.perform(together(self._loading())))

    async def _perform(self, operation: Operation[R], *, writes: bool = False) -> R:
        if not self._opened:
            operation, begins = begun(operation)
            if writes or begins:
                await self.open()
        return await self._executor.perform(operation)

"""Reads exported messages from a file of lines, a Parquet file, or a stream of lines, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from delayq.bulk.local_files import can_be_read
from delayq.bulk.message_lines import MessageLine, decode_line, is_parquet, not_a_message
from delayq.errors import ConfigurationError

BATCH_ROWS = 10_000
"""Messages in a batch."""
BATCH_BYTES = 32 << 20
"""Bytes of the lines in a batch, and then the rest of one line."""


class FileEntry(NamedTuple):
    """One message of a file, not yet decoded."""

    place: int
    """Its line or row, from 1."""
    content: bytes | dict[str, Any]

    def decode(self) -> MessageLine:
        """Return the message; raise `ConfigurationError` if it is none."""
        if isinstance(self.content, bytes):
            return decode_line(self.content)
        try:
            return msgspec.convert(self.content, MessageLine)
        except msgspec.ValidationError as error:
            raise not_a_message(error) from None


class MessageFile:
    """A file to read; it counts how far it is read."""

    def __init__(self, file: Path | BinaryIO) -> None:
        """Open nothing yet; raise `ConfigurationError` if there is no such file. A named pipe is read like a stream."""
        if isinstance(file, Path) and not can_be_read(file):
            raise ConfigurationError(f"there is no file {str(file)!r}")
        self._file = file
        self.name = str(file) if isinstance(file, Path) else "stdin"
        """What errors call it."""
        self.done = 0
        """Bytes of lines, or rows of Parquet, that have been read."""
        self.total: int | None = None
        """How many there are; None if unknown."""

    def batches(self) -> Iterator[list[FileEntry]]:
        """Yield the messages in batches; raises `ConfigurationError` for a file that cannot be read."""
        try:
            if not isinstance(self._file, Path):
                yield from self._lines(self._file)
            elif is_parquet(self._file):
                yield from self._rows(self._file)
            else:
                self.total = self._file.stat().st_size or None
                with self._file.open("rb") as lines:
                    yield from self._lines(lines)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"cannot read {self.name}: {error}") from error

    def _lines(self, lines: BinaryIO) -> Iterator[list[FileEntry]]:
        batch: list[FileEntry] = []
        begun = self.done
        for number, line in enumerate(lines, 1):
            self.done += len(line)
            if line.strip():
                batch.append(FileEntry(number, line))
            if len(batch) == BATCH_ROWS or self.done - begun >= BATCH_BYTES:
                yield batch
                batch, begun = [], self.done
        yield batch

    def _rows(self, path: Path) -> Iterator[list[FileEntry]]:
        from delayq.bulk.parquet_lines import read_parquet  # loads pyarrow

        for total, rows in read_parquet(path):
            self.total = total
            batch = [FileEntry(number, row) for number, row in enumerate(rows, self.done + 1)]
            self.done += len(batch)
            yield batch

"""Reads exported messages from a file of lines, a Parquet file, or a stream of lines, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import msgspec

from delayq.bulk.files.local_files import can_be_read, read_lines
from delayq.bulk.files.message_lines import MessageLine, decode_line, is_parquet, not_a_message
from delayq.bulk.load_options import MAX_PAYLOAD
from delayq.errors import ConfigurationError, PayloadTooLargeError

BATCH_BYTES = 2 << 20
"""Bytes of the lines or rows in a batch, and then those of one more."""
FORMATS = (".jsonl", ".ndjson", ".json", ".parquet")
"""How the files of messages end; without a suffix they have lines."""
LINE_PER_PAYLOAD = 6
"""Bytes that a byte of a payload takes in a line at most: a control character of a text is written like \\u0001."""
REST_OF_LINE = 1 << 20
"""Bytes of a line for all that is not its payload, at most."""


class FileBatch(NamedTuple):
    """Messages of a file, not yet decoded."""

    first: int
    """The line or row of the first, from 1."""
    contents: Sequence[bytes] | Sequence[dict[str, Any]]
    """Lines, of which some may be blank, or rows."""

    max_payload: int
    """Bytes; longer payloads are refused."""

    def decode(self) -> list[MessageLine]:
        """Return the messages; raise `ConfigurationError` if anything is none, or `PayloadTooLargeError`."""
        contents = [one for one in self.contents if not (isinstance(one, bytes) and one.isspace())]
        return [_decode(content, self.max_payload) for content in contents]

    def split(self, size: int) -> Iterator[Self]:
        """Yield batches of at most `size`."""
        for start in range(0, len(self.contents), size):
            yield self._replace(first=self.first + start, contents=self.contents[start : start + size])


def max_line(max_payload: int) -> int:
    """Return how many bytes a line may have, whatever its payload."""
    return LINE_PER_PAYLOAD * max_payload + REST_OF_LINE


def _decode(content: bytes | dict[str, Any], max_payload: int) -> MessageLine:
    if isinstance(content, bytes):
        if len(content) > max_line(max_payload):
            raise PayloadTooLargeError(f"the line is longer than {max_line(max_payload)} bytes")
        return decode_line(content)
    try:
        return msgspec.convert(content, MessageLine)
    except msgspec.ValidationError as error:
        raise not_a_message(error) from None


class MessageFile:
    """A file to read; it counts how far it is read."""

    def __init__(self, file: Path | BinaryIO, max_payload: int = MAX_PAYLOAD) -> None:
        """Open nothing yet; raise `ConfigurationError` if there is no such file. A named pipe is read like a stream."""
        if isinstance(file, Path) and not can_be_read(file):
            raise ConfigurationError(f"there is no file {str(file)!r}")
        self._file = file
        self._max_payload = max_payload
        self.name = str(file) if isinstance(file, Path) else "stdin"
        """What errors call it."""
        self.done = 0
        """Bytes of lines, or rows of Parquet, that have been read."""
        self.total: int | None = None
        """How many there are; None if unknown."""

    def batches(self) -> Iterator[FileBatch]:
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

    def _lines(self, file: BinaryIO) -> Iterator[FileBatch]:
        lines, size = [], 0
        number = 0
        for number, line in enumerate(read_lines(file, max_line(self._max_payload)), 1):
            lines.append(line)
            size += len(line)
            if size >= BATCH_BYTES:
                self.done += size
                yield FileBatch(number - len(lines) + 1, lines, self._max_payload)
                lines, size = [], 0
        self.done += size
        if lines:
            yield FileBatch(number - len(lines) + 1, lines, self._max_payload)

    def _rows(self, path: Path) -> Iterator[FileBatch]:
        from delayq.bulk.files.parquet_lines import read_parquet  # loads pyarrow

        for total, rows in read_parquet(path, BATCH_BYTES):
            self.total = total
            first = self.done + 1
            self.done += len(rows)
            yield FileBatch(first, rows, self._max_payload)

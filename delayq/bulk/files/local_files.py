"""Local files: checks of paths, which answer False for a name that no file can have, and lines of text."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO

from delayq.errors import ConfigurationError

TEXT_FORMATS = (".csv", ".jsonl", ".ndjson", ".json")
"""How the files of tables end that are texts."""
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_file(path: Path) -> bool:
    """Return whether there is a file."""
    return _is(path.is_file)


def can_be_read(path: Path) -> bool:
    """Return whether there is a file, or a pipe or the like, such as /dev/stdin."""
    return _is(path.exists) and not is_folder(path)


def is_folder(path: Path) -> bool:
    """Return whether there is a folder."""
    return _is(path.is_dir)


def check_suffix(path: Path, formats: Collection[str], more: str = "") -> str:
    """Return the suffix of a file in lower case, '' for none; raise `ConfigurationError` if no format has it."""
    suffix = path.suffix.lower()
    if suffix and suffix not in formats:
        raise ConfigurationError(f"{str(path)!r} ends with {path.suffix}, not with one of {', '.join(formats)}{more}")
    return suffix


def read_lines(stream: IO[bytes], max_line: int, *, is_text: bool = True) -> Iterator[bytes]:
    """Yield the lines of a stream; of a longer line, `max_line` bytes and one more.

    A text is UTF-8, with or without a byte order mark, which is left out; `ValueError` for UTF-16.
    """
    line = stream.readline(max_line + 1)
    if is_text:
        check_utf_8(line)
        line = line.removeprefix(codecs.BOM_UTF8)
    while line:
        yield line
        while len(line) > max_line and not line.endswith(b"\n"):
            line = stream.readline(max_line + 1)
        line = stream.readline(max_line + 1)


def check_utf_8(start: bytes, *, whole: bool = False) -> None:
    """Raise `ValueError` if a text begins like UTF-16, as it is saved on Windows, or is `whole` and not UTF-8."""
    if start.startswith(_UTF_16):
        raise ValueError("it is UTF-16: save it as UTF-8")
    if whole:
        try:
            start.decode()
        except UnicodeDecodeError as error:
            raise ValueError(NOT_UTF_8) from error


NOT_UTF_8 = "it is not UTF-8: save it as UTF-8"
"""What is said of a text of another encoding, such as Latin-1."""


def _is(asked: Callable[[], bool]) -> bool:
    try:
        return asked()
    except OSError:
        return False

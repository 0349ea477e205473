"""The file of an export, which appears when it is complete; until then, a part lies beside it that can be continued."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from delayq.bulk.files.local_files import check_suffix, is_file, is_folder
from delayq.bulk.files.message_files import FORMATS, MessageFile
from delayq.bulk.files.message_lines import is_parquet
from delayq.errors import ConfigurationError, DelayqError
from delayq.queue.sweeps.stored_messages import StoredPosition
from delayq.values.text import truncate
from delayq.values.times import monotonic

SAVE_EVERY = 0.3
"""Seconds after which the progress is saved again: a killed export repeats what it did since."""
MAX_SHOWN = 200
"""Characters of what another export is of, in an error."""


class ExportProgress(msgspec.Struct, frozen=True):
    """How far an export is: what it is of, where it goes on, and what its part has until there."""

    queue: str
    prefix: str
    states: list[str]
    redacted: list[str]
    """The paths of what it hides."""
    position: StoredPosition | None = StoredPosition()
    """None if all has been read."""
    size: int = 0
    """Bytes of the part."""
    counts: dict[str, int] = {}
    """Messages by state."""

    @property
    def subject(self) -> str:
        """What the export is of."""
        hidden = f", without {', '.join(self.redacted)}" if self.redacted else ""
        return f"queue {self.queue} under the prefix {self.prefix}, states {' '.join(self.states)}{hidden}"


class ExportFile:
    """The part of an export, opened to write."""

    def __init__(self, path: Path, file: BinaryIO, note: Path) -> None:
        self._path = path
        self._file = file
        self._note = note
        self._progress: ExportProgress | None = None
        """What is not saved yet."""
        self._save_at = 0.0

    def write(self, lines: bytes) -> None:
        """Add lines to the part."""
        self._file.write(lines)

    def note(self, progress: ExportProgress) -> None:
        """Note how far the export is; what was written until now counts. This is saved a few times a second."""
        self._progress = msgspec.structs.replace(progress, size=self._file.tell())
        if monotonic() >= self._save_at:
            self.save()
            self._save_at = monotonic() + SAVE_EVERY

    def save(self) -> None:
        """Save what was noted last, for an export that goes on from there."""
        if self._progress is None:
            return
        self._file.flush()
        written = self._note.with_name(f"{self._note.name}.new")
        written.write_bytes(msgspec.json.encode(self._progress))
        written.replace(self._note)
        self._progress = None

    def finish(self) -> None:
        """Let the file appear, in place of one that was there."""
        self._file.flush()
        os.fsync(self._file.fileno())
        part = Path(self._file.name)
        if is_parquet(self._path):
            from delayq.bulk.files.parquet_lines import write_parquet  # loads pyarrow

            write_parquet((batch.decode() for batch in MessageFile(part).batches()), self._path)
            part.unlink()
        else:
            part.replace(self._path)
        self._note.unlink(missing_ok=True)


def is_begun(path: Path) -> bool:
    """Return whether an export to this file has begun and has not been completed."""
    return is_file(_note_of(path))


def _note_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.progress")


@contextmanager
def open_export(path: Path, progress: ExportProgress, *, resume: bool) -> Iterator[tuple[ExportFile, ExportProgress]]:
    """Open the part of a file, and yield how far it is: with `resume` perhaps further than `progress`.

    Raises `ConfigurationError` if the file cannot be written, if another process exports to it, and if what would be
    resumed is of other messages.
    """
    check_suffix(path, FORMATS, "; `delayq list --csv` writes CSV" if path.suffix.lower() == ".csv" else "")
    if is_folder(path):
        raise ConfigurationError(f"{path} is a folder: give the name of a file")
    part, note = path.with_name(f".{path.name}.part"), _note_of(path)
    try:
        with part.open("ab") as file:  # which keeps what another process has written
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = os.path.samestat(os.fstat(file.fileno()), part.stat())
            except BlockingIOError:
                is_ours = False
            if not is_ours:  # or it has ended just now, and what was opened is its file
                raise ConfigurationError(f"another export to {path} is running")
            found = _read_progress(note, progress) if resume else None
            if found is None or part.stat().st_size < found.size:
                found = progress
            file.truncate(found.size)
            file.seek(0, os.SEEK_END)
            out = ExportFile(path, file, note)
            out.note(found)  # what is noted of an earlier export does not fit any more
            try:
                yield out, found
            except BaseException:
                out.save()
                raise
    except DelayqError:  # that Redis cannot be reached is an OSError, too
        raise
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error}") from error


def _read_progress(note: Path, wanted: ExportProgress) -> ExportProgress | None:
    try:
        found = msgspec.json.decode(note.read_bytes(), type=ExportProgress)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    if found.subject != wanted.subject:
        of = truncate(found.subject, MAX_SHOWN)
        raise ConfigurationError(f"the export that was interrupted is of {of}: leave out --resume to begin anew")
    return found

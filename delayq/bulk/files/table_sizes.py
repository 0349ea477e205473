"""How many rows and bytes the file of a table has, without reading the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from delayq.bulk.files.local_files import TEXT_FORMATS, is_folder

_parquet: Any = pyarrow.parquet
"""Untyped: its stubs lack some functions."""
_BLOCK = 1 << 20  # bytes of text that are read at a time


def sizes_of(path: Path) -> Iterator[tuple[int, int]]:
    """Yield the rows and bytes of the parts of a table: lines of a text, row groups of Parquet, not compressed.

    A folder has those of its files. A header and line ends in quotes count as rows. Nothing is yielded for what cannot
    be read: whoever reads the table says why.
    """
    if path.suffix.lower() in TEXT_FORMATS:
        with suppress(OSError), path.open("rb") as lines:
            while block := lines.read(_BLOCK):
                yield block.count(b"\n"), len(block)
        return
    for file in sorted(path.rglob("[!._]*")) if is_folder(path) else [path]:
        try:
            found = _parquet.read_metadata(file)
        except (OSError, pa.ArrowException):
            continue
        for at in range(found.num_row_groups):
            yield found.row_group(at).num_rows, found.row_group(at).total_byte_size

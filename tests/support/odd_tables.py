"""Files with odd types, encodings, zones and rows, for tests that plan them with Spark and without."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import available_timezones

import pyarrow as pa
import pyarrow.parquet as pq

from delayq.bulk.reminder_rules import Rule

RULES = [
    Rule("soon", offset="-2h"),
    Rule("eve", offset="-1d", at="02:30"),
    Rule("working", offset="-3d", weekdays="mon-fri", repeats=3, every="1d", retries=7),
]
ZONES = sorted(available_timezones() - {"localtime"})
# Gaps and folds of Berlin, New York and Lord Howe, a zone that skipped a day, and times before all clock changes.
WALLS = [
    *("2027-03-28 02:30", "2027-10-31 02:30:00.5", "2027-03-14T02:59:59.999999", "2027-11-07 01:00"),
    *("2027-10-03 02:15", "2027-04-04 01:45", "2011-12-30 12:00", "1883-11-18 12:03:58", "2099-12-31", "0001-01-20"),
]
ODD_ZONES = [
    "Mars/Base",
    "BST",
    "europe/berlin",
    "UTC+2",
    "GMT+1",
    "+5:45",
    "Z",
    "",
    "localtime",
    "SystemV/EST5",
    "+18:30",
]
TEXTS = ["", "plain", 'a "quote"', "back\\slash", "\x7f", "übergrößen ✓", "</script>", None]
NUMBERS = [0.0, -0.0, 0.1 + 0.2, 2e17, 1.2345678901234567e19, 9.5e22, 2.0**60, 5e-324, float("inf"), None]
FLAWS = ["null id", "null time", "null zone", "repeated id", "odd zone", "bad time", "out of range", "no zone column",
         "column Due", "column Id"]  # fmt: skip
CSV_FLAWS = ["latin-1", "utf-16", "short row", "column twice"]
PARQUET_FLAWS = ["TIME column"]
FILES = 100


def write_odd_file(number: int, folder: Path) -> Path:
    """Write the file of a number, the same for the same number; return its path."""
    some = random.Random(number)
    suffix = ("csv", "parquet", "jsonl")[number % 3]
    more = {"csv": CSV_FLAWS, "parquet": PARQUET_FLAWS, "jsonl": []}[suffix]
    flaw = some.choice(FLAWS + more * 2) if some.random() < 0.5 else None
    rows = [
        {"id": f"thing-{at}", "time": some.choice(WALLS), "zone": some.choice(ZONES), "text": some.choice(TEXTS)}
        for at in range(some.randrange(1, 30))
    ]
    spoil(rows, flaw, some)
    path = folder / f"odd-{number}.{suffix}"
    {"csv": write_csv, "parquet": write_parquet, "jsonl": write_json}[suffix](path, rows, flaw, some)
    return path


def spoil(rows: list[dict], flaw: str | None, some: random.Random) -> None:
    row = some.choice(rows)
    if flaw in {"null id", "null time", "null zone"}:
        row[flaw.removeprefix("null ")] = None
    elif flaw == "repeated id":
        rows.append(dict(row))
    elif flaw == "odd zone":
        row["zone"] = some.choice(ODD_ZONES)
    elif flaw == "bad time":
        row["time"] = some.choice(["tomorrow", "2013-02-30 09:00", "2013-01-31T09:00:00Z", "9:00"])
    elif flaw == "out of range":
        row["time"] = "9999-12-31 23:59"
    for one in rows:
        if flaw == "no zone column":
            del one["zone"]
        elif flaw in {"column Due", "column Id"}:
            one[flaw.removeprefix("column ")] = "1"


def write_csv(path: Path, rows: list[dict], flaw: str | None, some: random.Random) -> None:
    def cell(text: str | None) -> str:
        return '"' + text.replace('"', '""') + '"' if text else ""

    names = list(rows[0])
    lines = [",".join(cell(row.get(name)) for name in names) for row in rows]
    if flaw == "short row":
        lines[-1] = "thing-last"
    if flaw == "column twice":
        names, lines = [*names, "text"], [f"{line},x" for line in lines]
    encoding = {"latin-1": "latin-1", "utf-16": "utf-16"}.get(str(flaw), some.choice(["utf-8", "utf-8-sig"]))
    text = some.choice(["\n", "\r\n"]).join([",".join(names), *lines, ""])
    if flaw == "latin-1":
        text = text.replace("thing-0", "Käthe").replace("✓", "")
    path.write_bytes(text.encode(encoding))


def write_json(path: Path, rows: list[dict], _: str | None, some: random.Random) -> None:
    is_ascii = some.random() < 0.5
    for row in rows:
        more = {
            "number": some.choice([0.5, -0.0, 1e22, None]),
            "count": some.randrange(10),
            "flag": some.choice([True, None]),
        }
        row |= {name: value for name, value in more.items() if some.random() < 0.9}
    path.write_text("".join(json.dumps(row, ensure_ascii=is_ascii) + "\n" for row in rows), "utf-8")


def write_parquet(path: Path, rows: list[dict], flaw: str | None, some: random.Random) -> None:
    texts = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in rows[0]}
    start = datetime(2027, 1, 1, tzinfo=UTC)
    count = len(rows)
    at = [start + timedelta(microseconds=some.randrange(10**13)) for _ in rows]
    unit = some.choice(["ms", "us", "ns"])
    columns: dict[str, pa.Array] = {
        "number": pa.array([some.choice(NUMBERS) for _ in rows], pa.float64()),
        "small": pa.array([some.choice(NUMBERS[:3]) for _ in rows], pa.float32()),
        "count": pa.array(
            [some.choice([0, 1, 127, None]) for _ in rows], some.choice([pa.int8(), pa.int64(), pa.uint8()])
        ),
        "day": pa.array([some.choice([date(2026, 2, 28), None]) for _ in rows], pa.date32()),
        "at": pa.array([some.choice([at[0], None]) for _ in rows], pa.timestamp("us", "UTC")).cast(
            pa.timestamp(unit, "UTC"), safe=False
        ),
        "wall": pa.array([at[-1].replace(tzinfo=None)] * count, pa.timestamp("us")).cast(
            pa.timestamp(unit), safe=False
        ),
        "price": pa.array([Decimal("-0.0000001")] * count, pa.decimal128(20, 7)),
        "bytes": pa.array([some.choice([b"", b"\x00\xff", None]) for _ in rows], pa.binary()),
    }
    if flaw == "TIME column":
        columns["hour"] = pa.array([1] * count, pa.time64("us"))
    if flaw is None and some.random() < 0.7:
        kind = some.choice([pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ns"), pa.date32()])
        texts["time"] = pa.array([one.replace(tzinfo=None) for one in at], pa.timestamp("us")).cast(kind, safe=False)
    pq.write_table(pa.table(texts | columns), path)

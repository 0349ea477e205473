"""What an attacker or an accident would hand in: texts, numbers, times and things, for Hypothesis to draw from."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

TEXTS = [
    *("", " ", "\0", "a\0b", "\r\n", "a\r\nSET x 1\r\n", "\t", "\x7f", "\x1b[31m", "\x1b]0;title\x07", "\x9b2J"),
    *("{", "}", "{}", "{a}", "a}:b{", "a:b", "a/b", "a#b", "*", "?", "[a-z]", "\\", "^", "$", "%s", "%n", "{0}"),
    *("\u202eab", "\u2066ab", "a\u200d", "\ufeffa", "e\u0301", "\u00e9", "id\u0455", "\u0430dmin", "\uff41", "\u0663"),
    *("\U0001d7d8", "\ud800", "a\udfff", "\udc80", "\U0010ffff", "null", "None", "NaN", "-1", "0", "1e400", "@5", "a@"),
    *("'", '"', "`", ";", "&&", "|", "$(id)", "../..", "/etc/passwd", "=1+1", "+cmd", "@SUM(A1)", "<script>", "--help"),
    *("a" * 128, "a" * 129, "x" * 10_000, "é" * 5000, "{" * 5000),
]


class Broken:
    """A thing that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


THINGS: list[Any] = [
    *(None, True, False, 0, 1, -1, 5, 10**6, 10**18, 10**400, -(10**400), 0.0, 0.1, -0.1, 1e308),
    *(math.nan, math.inf, -math.inf, 1j, b"", b"x", b"\xff\x00", bytearray(b"x"), memoryview(b"x")),
    *(timedelta(0), timedelta(1), timedelta(-1), timedelta.max, timedelta.min),
    *(datetime.now(UTC), datetime.max, datetime.min, date(2026, 1, 1)),  # noqa: DTZ901 - naive and far: to be refused
    *(datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)),
    *(
        (),
        [],
        {},
        set(),
        [1, 2],
        ["a"],
        {"a": "b"},
        {"a": 1},
        {1: "a"},
        {"a": "b" * 20_000},
        {"\ud800": "a"},
        {"a": None},
    ),
    *(object(), Broken(), [Broken()], int, len, ValueError("x"), ...),
]
"""Things of each kind, the wrong and the odd among them."""

texts = st.sampled_from(TEXTS) | st.text(max_size=12) | st.text("abcXYZ019._-:@/+={}*#", max_size=8)
durations = st.sampled_from(["1h30m", "5s", "1y", "-1s", "9" * 400 + "s", "1.5.5s"]) | st.integers() | st.floats()
things = st.sampled_from(THINGS) | texts | durations | st.binary(max_size=8)

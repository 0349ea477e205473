"""The page of a report: one HTML file that needs nothing else, with figures, plots and tables.

It makes no request and runs no script. Whatever comes from data is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import delayq
from delayq.errors import ConfigurationError
from delayq.spark import plots
from delayq.spark.account import OUTCOMES, Account, Row, Tabled, account, counted, duration, period
from delayq.spark.markup import Column, details, figure, listed, section, table, text

if TYPE_CHECKING:
    import pyarrow as pa

MOST_HOURS = 72
"""Hours in the table of lateness; of more, it has the latest."""
WORST = 24
"""Rows of the tables of the latest hours and the busiest minutes."""

_GOOD = {True: "good", False: "bad", None: "open"}


def page(reports: Tabled, *, queue: str = "", at: datetime | None = None) -> str:
    """Return the page about reports on the log of a queue, made `at` a time; without one, it says nothing of it.

    The same reports give the same page, to the byte. A naive time raises `ConfigurationError`.
    """
    if at is not None and at.utcoffset() is None:
        raise ConfigurationError(f"at must carry a time zone; {at.isoformat()} is naive")
    tables = reports.tables()
    told = account(tables)
    title = f"{queue} · delayq report" if queue else "delayq report"
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    made = f" · made {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if at else ""
    when = "" if told.is_empty else period(told.log)
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<header>",
        f'<p class="kind">delayq report</p>\n<h1>{text(queue or "Event log")}</h1>',
        f"<p>{text((when + made).removeprefix(' · '))}</p>",
        f'<p class="sentence">{text(told.sentence)}</p>\n</header>\n<main>',
        "" if told.is_empty else "\n".join([_figures(told), _verdicts(told), *_sections(tables, told)]),
        f"</main>\n<footer>delayq {delayq.__version__} · all times are UTC</footer>\n</body>\n</html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _sections(tables: Mapping[str, pa.Table], told: Account) -> Iterable[str]:
    rows = {name: table.to_pylist() for name, table in tables.items() if name not in {"lateness", "rates"}}
    yield _lateness(tables["lateness"])
    yield _rates(tables["rates"])
    yield _attempts(rows["funnel"])
    if rows["errors"]:
        yield _errors(rows["errors"], told)
    if rows["dead"]:
        yield _dead(rows["dead"])
    if rows["redeliveries"]:
        yield _again(rows["redeliveries"], rows["duplicates"])
    yield _log(rows["totals"], rows["gaps"], told)


def _figures(told: Account) -> str:
    late = told.late or {}
    figures = {
        "messages": f"{told.log['messages']:,}",
        "deliveries": f"{told.kinds['delivered']:,}",
        "acked": f"{told.kinds['acked']:,}",
        "failed deliveries": f"{told.failures:,}",
        "dead": f"{told.kinds['dead']:,}",
        "late, p50": duration(late.get("p50_ms")) or "–",
        "late, p99": duration(late.get("p99_ms")) or "–",
        "late, max": duration(late.get("max_ms")) or "–",
    }
    cells = (f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in figures.items())
    return f'<dl class="figures">{"".join(cells)}</dl>'


def _verdicts(told: Account) -> str:
    cells = (
        f'<li class="{_GOOD[one.holds]}"><b>{text(one.title)}</b><span>{text(one.text)}</span></li>'
        for one in told.verdicts
    )
    return f'<ul class="verdicts">{"".join(cells)}</ul>'


def _lateness(hours: pa.Table) -> str:
    said = "From the due time to the delivery, first attempts only: later ones wait for a nack delay or a lease."
    if not hours.num_rows:
        return section("Lateness", "Nothing was delivered for the first time.")
    svg, width = plots.lateness_plot(hours)
    note = "Each point is an hour" if width == 1 else f"Each point is the worst of {width:,} hours"
    title, shown = "By hour", hours
    if hours.num_rows > MOST_HOURS:
        title = f"The {WORST} latest of {hours.num_rows:,} hours, by p99"
        shown = hours.sort_by([("p99_ms", "descending"), ("hour", "ascending")]).slice(0, WORST)
    marks = [Column(name[:3], name, "ms") for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")]
    columns = [Column("hour", "hour", "minute"), Column("deliveries", "deliveries"), *marks, Column("early", "early")]
    plot = figure(svg, f"{note}; the scale is logarithmic.")
    return section("Lateness", said, plot, details(title, table(shown.to_pylist(), columns)))


def _rates(minutes: pa.Table) -> str:
    svg, width = plots.rates_plot(minutes)
    note = "" if width == 1 else f"Means over {duration(width * 60_000)}."
    busiest = minutes.sort_by([("delivered", "descending"), ("minute", "ascending")]).slice(0, WORST)
    names = ("sent", "delivered", "acked", "nacked", "expired", "dead", "cancelled")
    columns = [Column("minute", "minute", "minute"), *(Column(name, name) for name in names)]
    title = f"The {busiest.num_rows} busiest of {counted(minutes.num_rows, 'minute')} with events, by deliveries"
    return section("Events a minute", note, figure(svg), details(title, table(busiest.to_pylist(), columns)))


def _attempts(rows: list[Row]) -> str:
    said = (
        "How the deliveries of each attempt ended. Released ones were handed back unstarted; open ones have not ended."
    )
    if not rows:
        return section("Attempts", "Nothing was delivered.")
    named = [{**row, "attempt": row["attempt"] or "before the log"} for row in rows]
    names = ("delivered", *OUTCOMES, "dead")
    columns = [
        Column("attempt", "attempt"),
        *(Column(one, one) for one in names),
        Column("share acked", "share", "share"),
    ]
    note = f"The first {plots.MOST_BARS} attempts." if len(rows) > plots.MOST_BARS else ""
    return section("Attempts", said, figure(plots.funnel_plot(rows), note), table(named, columns))


def _errors(rows: list[Row], told: Account) -> str:
    said = f"What the {told.failures:,} failed deliveries said, by the first line."
    columns = [
        Column("error", "error", "text"),
        Column("", "failures", "bar"),
        Column("failures", "failures"),
        Column("messages", "messages"),
        Column("for example", "example", "id"),
    ]
    return section("Errors", said, listed(rows, columns))


def _dead(rows: list[Row]) -> str:
    columns = [
        Column("reason", "reason", "text"),
        Column("deaths", "deaths"),
        Column("messages", "messages"),
        Column("first", "first", "time"),
        Column("last", "last", "time"),
    ]
    said = "What went to the dead letter, by the reason."
    return section("Dead letter", said, figure(plots.dead_plot(rows)), listed(rows, columns))


def _again(rows: list[Row], found: list[Row]) -> str:
    said = "Deliveries beyond the first of a life, and acks beyond the first, by what came before."
    named = [{**row, "explained": "yes" if row["explained"] else "no"} for row in rows]
    columns = [
        Column("what", "kind", "word"),
        Column("after", "after", "word"),
        Column("explained", "explained", "word"),
        Column("events", "events"),
    ]
    parts = [table(named, columns)]
    if found:
        places = [
            Column("message", "id", "id"),
            Column("what", "kind", "word"),
            Column("after", "after", "word"),
            Column("at", "at", "time"),
            Column("attempt", "attempt"),
            Column("offset", "offset"),
        ]
        parts += ["<h3>Not explained</h3>", listed(found, places)]
    return section("Duplicates", said, *parts)


def _log(rows: list[Row], gaps: list[Row], told: Account) -> str:
    log = told.log
    said = (
        f"{counted(log['events'], 'event')} in {log['entries']:,} log entries, "
        f"offsets {log['first_offset']:,} to {log['last_offset']:,}."
    )
    seen = [row for row in rows if row["events"]]
    ends = [Column("first", "first", "time"), Column("last", "last", "time")]
    parts = [table(seen, [Column("kind", "kind", "word"), Column("events", "events"), *ends])]
    if gaps:
        columns = [Column(f"{end} missing offset", end) for end in ("first", "last")]
        parts += ["<h3>Gaps</h3>", listed(gaps, [*columns, Column("entries", "missing")])]
    return section("The log", said, *parts)

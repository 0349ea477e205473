"""The page of a report: one self-contained HTML file with figures, plots and tables.

It makes no requests and runs no scripts. All data is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import delayq
from delayq.errors import ConfigurationError
from delayq.report import plots
from delayq.report.audit_section import END, START
from delayq.report.html import TableColumn, columns, details, figure, listed, section, table, text
from delayq.report.overview import OUTCOMES, Overview, Row, duration, now_of, overview_of, period
from delayq.values.text import pluralize

if TYPE_CHECKING:
    import pyarrow as pa

    from delayq.queue.inspecting.counts import Stats

MAX_ROWS = 72
"""Rows of the lateness table; if there are more, it shows those with the latest deliveries."""
WORST = 24
"""Rows of the tables of the worst and the busiest times."""

_CLASSES = {True: "good", False: "bad", None: "open"}


def page(
    tables: Mapping[str, pa.Table],
    *,
    queue: str = "",
    at: datetime | None = None,
    now: Stats | None = None,
    formats: Sequence[str] = (),
) -> str:
    """Return the page for a report's tables; it shows the `queue` and the time `at` which it was made, if given.

    With `now`, it says what is in the queue; with `formats`, it links to the files of the tables beside it. The same
    tables give the same page, byte by byte. A naive time raises `ConfigurationError`.
    """
    if at is not None and at.utcoffset() is None:
        raise ConfigurationError(f"at must carry a time zone; {at.isoformat()} is naive")
    overview = overview_of(tables)
    title = f"{queue} · delayq report" if queue else "delayq report"
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    made = f" · made {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if at else ""
    when = "" if overview.is_empty else period(overview.log)
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<header>",
        f'<p class="kind">delayq report</p>\n<h1>{text(queue or "Event log")}</h1>',
        f"<p>{text((when + made).removeprefix(' · '))}</p>",
        f'<p class="sentence">{text(overview.sentence)}</p>',
        "" if now is None else f"<p>{text(now_of(now))}</p>",
        f"</header>\n<main>\n{START}{END}".rstrip(),
        "" if overview.is_empty else "\n".join([_checks(overview), _figures(overview), *_sections(tables, overview)]),
        _files(tables, formats) if formats else "",
        f"</main>\n<footer>delayq {delayq.__version__} · all times are UTC</footer>\n</body>\n</html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _sections(tables: Mapping[str, pa.Table], overview: Overview) -> Iterable[str]:
    rows = {name: table.to_pylist() for name, table in tables.items() if name not in {"lateness", "rates"}}
    yield _lateness(tables["lateness"])
    yield _rates(tables["rates"])
    yield _attempts(rows["funnel"])
    if rows["errors"]:
        yield _errors(rows["errors"], overview)
    if rows["dead"]:
        yield _dead(rows["dead"])
    if rows["redeliveries"]:
        yield _again(rows["redeliveries"], rows["duplicates"])
    yield _log(rows["totals"], rows["gaps"], overview)


def _files(tables: Mapping[str, pa.Table], formats: Sequence[str]) -> str:
    def link(name: str, ending: str) -> str:
        return f'<a href="{name}.{ending}">{ending}</a>'

    items = (f"<li>{name}: {', '.join(link(name, one) for one in formats)}</li>" for name in tables)
    return section("Tables", "The tables of this report, beside this page.", f'<ul class="files">{"".join(items)}</ul>')


def _figures(overview: Overview) -> str:
    late = overview.late or {}
    figures = {
        "messages": f"{overview.log['messages']:,}",
        "deliveries": f"{overview.kinds['delivered']:,}",
        "acked": f"{overview.kinds['acked']:,}",
        "failed deliveries": f"{overview.failures:,}",
        "dead": f"{overview.kinds['dead']:,}",
        "late, p50": duration(late.get("p50_ms")) or "–",
        "late, p99": duration(late.get("p99_ms")) or "–",
        "late, max": duration(late.get("max_ms")) or "–",
    }
    cells = (f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in figures.items())
    return f'<dl class="figures">{"".join(cells)}</dl>'


def _checks(overview: Overview) -> str:
    cells = (
        f'<li class="{_CLASSES[one.passed]}"><b>{text(one.title)}</b><span>{text(one.text)}</span></li>'
        for one in overview.checks
    )
    return f'<ul class="checks">{"".join(cells)}</ul>'


def _lateness(rows: pa.Table) -> str:
    description = "Time from due to delivery, for first attempts only: later ones wait for a nack delay or a lease."
    if not rows.num_rows:
        return section("Lateness", "There were no first attempts.")
    svg, width = plots.lateness_plot(rows)
    seconds = rows.column("seconds")[0].as_py()
    note = f"Each point is {duration(1000 * seconds)}"
    if width != seconds:
        note = f"Each point is the worst of {duration(1000 * width)}"
    title, shown = f"By {duration(1000 * seconds)}", rows
    if rows.num_rows > MAX_ROWS:
        title = f"The {WORST} latest of {rows.num_rows:,} times of {duration(1000 * seconds)}, by p99"
        shown = rows.sort_by([("p99_ms", "descending"), ("begin", "ascending")]).slice(0, WORST)
    ranks = [TableColumn(name, "ms", title=name[:3]) for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")]
    cells = [*columns(begin="begin", deliveries="number"), *ranks, *columns(early="number")]
    plot = figure(svg, f"{note}; the scale is logarithmic.")
    return section("Lateness", description, plot, details(title, table(shown.to_pylist(), cells)))


def _rates(rows: pa.Table) -> str:
    svg, width = plots.rates_plot(rows)
    seconds, unit = rows.column("seconds")[0].as_py(), plots.rate_unit(rows)
    note = "" if width == unit else f"Means over {duration(width * 1000)}."
    busiest = rows.sort_by([("delivered", "descending"), ("begin", "ascending")]).slice(0, WORST)
    names = ("sent", "delivered", "acked", "nacked", "expired", "dead", "cancelled")
    shown = columns(begin="begin", **dict.fromkeys(names, "number"))
    times = f"{rows.num_rows:,} times of {duration(seconds * 1000)}"
    title = f"The {busiest.num_rows} busiest of {times} with events, by deliveries"
    heading = "Events a second" if unit == 1 else "Events a minute"
    return section(heading, note, figure(svg), details(title, table(busiest.to_pylist(), shown)))


def _attempts(rows: list[Row]) -> str:
    description = "How the deliveries of each attempt ended. Released: returned unprocessed. Open: not yet ended."
    if not rows:
        return section("Attempts", "There were no deliveries.")
    named = [{**row, "attempt": row["attempt"] or "before the log"} for row in rows]
    names = ("delivered", *OUTCOMES, "dead")
    counts = columns(**dict.fromkeys(("attempt", *names), "number"))
    shown = [*counts, TableColumn("share", "share", title="share acked")]
    note = f"The first {plots.MAX_BARS} attempts." if len(rows) > plots.MAX_BARS else ""
    return section("Attempts", description, figure(plots.funnel_plot(rows), note), table(named, shown))


def _errors(rows: list[Row], overview: Overview) -> str:
    description = f"Errors of the {overview.failures:,} failed deliveries, by their first line."
    counts = [TableColumn("failures", "bar", title=""), *columns(failures="number", messages="number")]
    shown = [TableColumn("error", "text"), *counts, TableColumn("example", "id", title="for example")]
    return section("Errors", description, listed(rows, shown))


def _dead(rows: list[Row]) -> str:
    shown = columns(reason="text", deaths="number", messages="number", first="time", last="time")
    description = "Messages that went to the dead letter, by reason."
    return section("Dead letter", description, figure(plots.dead_plot(rows)), listed(rows, shown))


def _again(rows: list[Row], unexplained: list[Row]) -> str:
    description = "Deliveries and acks after the first in a message's life, by the event before."
    named = [{**row, "explained": "yes" if row["explained"] else "no"} for row in rows]
    event = TableColumn("kind", "word", title="event")
    parts = [table(named, [event, *columns(after="word", explained="word", events="number")])]
    if unexplained:
        location = columns(after="word", event_at="time", attempt="number", log_offset="number")
        parts += [
            "<h3>Unexplained</h3>",
            listed(unexplained, [TableColumn("id", "id", title="message"), event, *location]),
        ]
    return section("Duplicates", description, *parts)


def _log(rows: list[Row], gaps: list[Row], overview: Overview) -> str:
    log = overview.log
    description = (
        f"{pluralize(log['events'], 'event')} in {log['entries']:,} log entries, "
        f"offsets {log['first_offset']:,} to {log['last_offset']:,}."
    )
    seen = [row for row in rows if row["events"]]
    ends = [TableColumn("first", "time"), TableColumn("last", "time")]
    parts = [table(seen, [TableColumn("kind", "word"), TableColumn("events"), *ends])]
    if gaps:
        columns = [TableColumn(end, title=f"{end} missing offset") for end in ("first", "last")]
        parts += ["<h3>Gaps</h3>", listed(gaps, [*columns, TableColumn("missing", title="entries")])]
    return section("The log", description, *parts)

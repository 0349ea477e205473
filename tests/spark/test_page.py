"""The page of a report and its summary: contents, escaping of data, and layout in a browser."""

from __future__ import annotations

import re
import warnings
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pyarrow as pa
import pytest

from delayq import ConfigurationError
from delayq.cli.support.output import console, print_rich
from delayq.queue.inspecting.event_log import EventKind
from delayq.report.overview import OUTCOMES, duration, overview_of
from delayq.report.page import page
from delayq.report.plots import MAX_POINTS, lateness_plot, rates_plot
from delayq.report.summary import summary

T0 = datetime(2026, 3, 1, 9, tzinfo=UTC)
TIME, MARK = pa.timestamp("us", tz="UTC"), pa.float64()
COLUMNS = {
    "log": {"first": TIME, "last": TIME},
    "totals": {"kind": pa.string(), "first": TIME, "last": TIME},
    "lateness_overall": dict.fromkeys(["p50_ms", "p90_ms", "p99_ms"], MARK),
    "lateness": {"begin": TIME} | dict.fromkeys(["p50_ms", "p90_ms", "p99_ms"], MARK),
    "rates": {"begin": TIME},
    "funnel": {"share": MARK},
    "errors": {"error": pa.string(), "example": pa.string()},
    "dead": {"reason": pa.string(), "first": TIME, "last": TIME},
    "redeliveries": {"kind": pa.string(), "after": pa.string(), "explained": pa.bool_()},
    "duplicates": {"id": pa.string(), "kind": pa.string(), "after": pa.string(), "event_at": TIME},
    "gaps": {},
}
"""Columns that do not count something."""
SECONDS = {"lateness": {"seconds": 3600}, "rates": {"seconds": 60}}
NUMBERS = {
    "log": ["events", "messages", "entries", "missing", "first_offset", "last_offset"],
    "totals": ["events"],
    "lateness_overall": ["deliveries", "early", "max_ms"],
    "lateness": ["seconds", "deliveries", "early", "max_ms"],
    "rates": ["seconds", *(kind.value for kind in EventKind)],
    "funnel": ["attempt", "delivered", *OUTCOMES, "dead"],
    "errors": ["failures", "messages"],
    "dead": ["deaths", "messages"],
    "redeliveries": ["events"],
    "duplicates": ["attempt", "token", "log_offset", "entry_index"],
    "gaps": ["first", "last", "missing"],
}


def tables_of(**rows: list[dict]) -> dict[str, pa.Table]:
    """Make the tables of a report from the rows of each; missing values are 0 or null."""
    tables = {}
    for name, known in COLUMNS.items():
        counts = dict.fromkeys(NUMBERS[name], pa.int64())
        full = [dict.fromkeys(NUMBERS[name], 0) | SECONDS.get(name, {}) | row for row in rows.get(name, [])]
        tables[name] = pa.Table.from_pylist(full, pa.schema(known | counts))
    return tables


def marks(n: int = 0) -> dict:
    return {
        "p50_ms": 2.0,
        "p90_ms": 8.5 + n % 7,
        "p99_ms": 40.0 + n % 50,
        "max_ms": 300 + n % 900,
        "deliveries": 40 + n,
    }


def totals(**events: int) -> list[dict]:
    return [{"kind": kind.value, "events": events.get(kind.value, 0), "first": T0, "last": T0} for kind in EventKind]


def healthy_tables(hours: int = 48, **more: list[dict]) -> dict[str, pa.Table]:
    """Make the tables of a queue without problems, at work for some hours."""
    rates = [
        {"begin": T0 + timedelta(minutes=30 * n), "sent": 9, "delivered": n % 9, "acked": n % 8, "nacked": n % 2}
        for n in range(hours * 2)
    ]
    rows = {
        "log": [
            {
                "events": 12_345, "messages": 4000, "entries": 900, "first": T0, "last": T0 + timedelta(hours=hours),
                "first_offset": 1, "last_offset": 900,
            }
        ],
        "totals": totals(sent=4000, delivered=4100, acked=3970, nacked=90, expired=10, dead=30),
        "lateness_overall": [marks()],
        "lateness": [{"begin": T0 + timedelta(hours=n)} | marks(n) for n in range(hours)],
        "rates": rates,
        "funnel": [
            {"attempt": 1, "delivered": 4000, "acked": 3900, "nacked": 90, "expired": 10, "share": 0.975},
            {"attempt": 2, "delivered": 100, "acked": 70, "dead": 30, "share": 0.7},
        ],
        "errors": [{"error": "ValueError: no such order", "failures": 90, "messages": 80, "example": "order-1"}],
        "dead": [{"reason": "retries spent", "deaths": 30, "messages": 30, "first": T0, "last": T0}],
        "redeliveries": [{"kind": "delivered", "after": "nacked", "explained": True, "events": 90}],
    }  # fmt: skip
    return tables_of(**rows | more)


NOTHING = tables_of(log=[{"events": 0}], totals=totals())
FAULTY = healthy_tables(
    log=[{"events": 9, "messages": 3, "entries": 7, "missing": 2, "first": T0, "last": T0, "last_offset": 9}],
    lateness_overall=[marks() | {"early": 3}],
    redeliveries=[
        {"kind": "delivered", "after": "delivered", "explained": False, "events": 2},
        {"kind": "acked", "after": "acked", "explained": False, "events": 1},
        {"kind": "delivered", "after": "expired", "explained": True, "events": 5},
    ],
    duplicates=[
        {"id": "order-7", "kind": "delivered", "after": "delivered", "event_at": T0, "attempt": 2, "log_offset": 5}
    ],
    gaps=[{"first": 3, "last": 4, "missing": 2}],
)


class Texts(HTMLParser):
    """Text, tags and ids of a page."""

    def __init__(self, text: str) -> None:
        """Parse a page; every element must be closed exactly once."""
        super().__init__()
        self.shown, self.tags, self.ids, self._open = [], [], [], []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        if self._open and self._open[-1] != "style":
            self.shown.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.shown))


@pytest.mark.long
def test_page_has_the_figures_of_a_report():
    text = Texts(page(healthy_tables(), queue="orders", at=T0)).text
    assert "orders 2026-03-01 09:00:00 to 2026-03-03 09:00:00 UTC · made 2026-03-01 09:00:00 UTC" in text
    assert "4,000 messages in 2 d: 3,970 acked, 30 dead." in text
    assert "failed deliveries 100" in text
    assert "Never early Delivered before the due time: 0 of 40 first attempts." in text
    assert "after a failure or release: 90; without explanation: 0." in text
    assert "Entries missing from offset 1 to 900: 0." in text
    assert "ValueError: no such order" in text
    for heading in ("Lateness", "Events a minute", "Attempts", "Errors", "Dead letter", "Duplicates", "The log"):
        assert f" {heading} " in text


def test_page_shows_problems():
    made = page(FAULTY)
    text = Texts(made).text
    assert made.count('class="bad"') == 5
    assert "Delivered before the due time: 3 of 40" in text
    assert "without explanation: 2." in text
    assert "Messages acked again in the same life: 1." in text
    assert "Entries missing from offset 0 to 9: 2. The figures of this report may be wrong." in text
    assert "Redelivered after an expired lease: 5. Their callbacks may have run twice." in text
    assert "Unexplained" in text
    assert "order-7" in text
    assert "first missing offset last missing offset entries 3 4 2" in text


def test_page_says_that_missing_entries_cannot_be_detected():
    log = {"events": 9, "missing": None, "first": T0, "last": T0}
    (complete,) = (one for one in overview_of(healthy_tables(log=[log])).checks if one.title == "Complete log")
    assert complete.passed is None
    assert "cannot be detected" in complete.text


def test_page_reports_entries_counted_twice():
    log = {"events": 9, "missing": -4, "first": T0, "last": T0}
    (complete,) = (one for one in overview_of(healthy_tables(log=[log])).checks if one.title == "Complete log")
    assert complete.passed is False
    assert complete.text.endswith("counted twice in this report: 4.")


def test_page_of_an_empty_log():
    text = Texts(page(NOTHING)).text
    assert "The log has no events." in text
    assert "svg" not in Texts(page(NOTHING)).tags


def test_page_without_deliveries_has_no_lateness():
    rows = {name: [] for name in ("lateness_overall", "lateness", "funnel", "errors", "dead", "redeliveries")}
    made = healthy_tables(**rows, rates=[{"begin": T0, "sent": 1}], totals=totals(sent=1))
    text = Texts(page(made)).text
    assert "There were no first attempts." in text
    assert "4,000 messages in 2 d: none has ended." in text


EVIL = "<script>alert(1)</script>&amp;\"'\x1b[31m\u202e</svg>$x^2$"


def test_data_is_escaped():
    made = healthy_tables(
        errors=[{"error": EVIL, "failures": 1, "messages": 1, "example": "<em>"}],
        dead=[{"reason": EVIL, "deaths": 1, "messages": 1, "first": T0, "last": T0}],
        duplicates=[{"id": "<em>x", "kind": "<em>", "after": "<em>", "event_at": T0}],
    )
    read = Texts(page(made, queue="<script>"))
    assert not {"script", "em"} & set(read.tags)
    assert read.text.count("<script>alert(1)</script>&amp;\"'</svg>$x^2$") >= 2
    assert "\x1b" not in read.text
    assert "\u202e" not in read.text


@pytest.mark.long
def test_same_report_gives_the_same_page():
    assert page(healthy_tables(), queue="q", at=T0) == page(healthy_tables(), queue="q", at=T0)
    assert page(healthy_tables()).count("made 2") == 0


def test_page_loads_no_other_files():
    made = page(healthy_tables())
    assert not re.search(r"""(src|href)=["'](?!#)|@import|url\((?!#)""", made)
    ids = Texts(made).ids
    assert len(ids) == len(set(ids))


@pytest.mark.long
def test_letters_missing_in_the_font_of_the_plots_are_shown():
    made = healthy_tables(
        dead=[{"reason": "注文が見つかりません", "deaths": 1, "messages": 1, "first": T0, "last": T0}]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert page(made).count("注文が見つかりません") == 2


def test_naive_time_is_refused():
    with pytest.raises(ConfigurationError, match="at must carry a time zone"):
        page(NOTHING, at=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.long
@pytest.mark.parametrize("hours", [1, 299, 10_000])
def test_number_of_plotted_points_is_limited(hours):
    made = healthy_tables(hours=hours)
    for draw, table in ((lateness_plot, "lateness"), (rates_plot, "rates")):
        svg, width = draw(made[table])
        assert hours * 3600 / width <= MAX_POINTS + 1
        assert len(svg) < 150_000
    assert len(page(healthy_tables(hours=hours))) < 400_000


@pytest.mark.long
def test_only_the_latest_hours_are_listed():
    text = Texts(page(healthy_tables(hours=10_000))).text
    assert "The 24 latest of 10,000 times of 1 h, by p99" in text
    assert "Each point is the worst of 4 d" in text


def test_single_time_in_the_far_future_does_not_break_the_plots():
    made = healthy_tables(hours=3)
    far = tables_of(
        lateness=[*made["lateness"].to_pylist(), {"begin": T0 + timedelta(days=36_500)} | marks()],
        rates=[*made["rates"].to_pylist(), {"begin": T0 + timedelta(days=36_500), "sent": 1}],
    )
    assert lateness_plot(far["lateness"])[0].startswith("<svg")
    assert rates_plot(far["rates"])[0].startswith("<svg")


def test_early_deliveries_are_plotted():
    made = tables_of(
        lateness=[{"begin": T0, "p50_ms": -5.0, "p90_ms": 0.0, "p99_ms": 0.0, "max_ms": 0, "deliveries": 2}]
    )
    assert "NaN" not in lateness_plot(made["lateness"])[0]


@pytest.mark.table(
    ("ms", "shown"),
    [(0, "0 ms"), (1.5, "1.5 ms"), (999.6, "1,000 ms"), (1000, "1 s"), (59_940, "59.9 s"), (98_400, "1 min 38 s"),
     (-90_000, "-1 min 30 s"), (7_200_000, "2 h"), (7_500_000, "2 h 5 min"), (97_200_000, "1 d 3 h"),
     (86_400_000 * 1234, "1,234 d"), (-5, "-5 ms"), (None, "")],
)  # fmt: skip
def test_durations_are_shown_in_readable_units(ms, shown):
    assert duration(ms) == shown


# The summary


def printed(made, capsys) -> str:
    print_rich(summary(made))
    return capsys.readouterr().out


def test_summary_has_the_main_figures(capsys):
    text = printed(healthy_tables(), capsys)
    assert len(text.splitlines()) < 30
    assert text.startswith(
        "4,000 messages in 2 d: 3,970 acked, 30 dead.\n2026-03-01 09:00:00 to 2026-03-03 09:00:00 UTC\n"
    )
    assert re.search(r"✓ +Never early +Delivered before the due time: 0 of 40 first attempts\.\n", text)
    assert re.search(r"of first attempts +2 ms +8.5 ms +40 ms +300 ms\n", text)
    assert re.search(r"acked +3,970\n", text)
    assert re.search(r"30 +30 +retries spent\n", text)


def test_summary_shows_problems(capsys):
    text = printed(FAULTY, capsys)
    assert len(re.findall(r"^✗ ", text, re.MULTILINE)) == 5
    assert "–  Possibly run twice" in text


def test_summary_of_an_empty_log(capsys):
    assert printed(NOTHING, capsys) == "The log has no events.\n"


def test_summary_removes_terminal_escapes(capsys):
    made = healthy_tables(errors=[{"error": EVIL, "failures": 1, "messages": 1}], dead=[{"reason": EVIL, "deaths": 1}])
    assert not {"\x1b", "\u202e"} & set(printed(made, capsys))


def test_summary_has_colours_unless_no_color(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = console()
    with coloured.capture() as captured:
        coloured.print(summary(FAULTY))
    assert "\x1b[" in captured.get()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = console()
    with plain.capture() as captured:
        plain.print(summary(FAULTY))
    assert "\x1b[3" not in captured.get()


# In a browser


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_page_in_a_browser(browser, tmp_path, width, scheme):
    file = tmp_path / "report.html"
    long = {"error": EVIL + "x" * 180, "failures": 1, "messages": 1, "example": "y" * 128}
    duplicate = {"id": "z" * 128, "kind": "delivered", "after": "acked", "event_at": T0, "log_offset": 10**14}
    file.write_text(
        page(healthy_tables(errors=[long], duplicates=[duplicate]), queue="q" * 128, at=T0), encoding="utf-8"
    )
    messages, requests = [], []
    with browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme) as tab:
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(file.as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        for heading in ("Lateness", "Events a minute", "Attempts", "Errors", "Dead letter", "Duplicates", "The log"):
            assert tab.get_by_role("heading", name=heading, exact=True).is_visible()
        plots = tab.get_by_role("img").all()
        assert len(plots) == 4
        for plot in plots:
            box = plot.bounding_box()
            assert box["width"] >= 600
            assert box["height"] > 20
        drawn = tab.evaluate("getComputedStyle(document.querySelector('svg path[style*=\"--teal\"]')).stroke")
        assert drawn == ("rgb(13, 148, 136)" if scheme == "light" else "rgb(45, 212, 191)")
        assert tab.get_by_text("<script>alert(1)</script>").first.is_visible()
    assert requests == [file.as_uri()]
    assert messages == []


@pytest.mark.long
def test_printed_page_cuts_no_column(browser, tmp_path):
    """A4 is 210 mm wide, 186 mm within the margins: 703 pixels."""
    file = tmp_path / "report.html"
    long = {"error": EVIL + "x" * 180, "failures": 1, "messages": 1, "example": "y" * 128}
    duplicate = {"id": "z" * 128, "kind": "delivered", "after": "acked", "event_at": T0, "log_offset": 10**14}
    attempts = [{"attempt": n, **dict.fromkeys(("delivered", *OUTCOMES, "dead"), 10**7)} for n in range(1, 4)]
    tables = healthy_tables(errors=[long], duplicates=[duplicate], funnel=attempts)
    file.write_text(page(tables, queue="q" * 128, at=T0, formats=("csv", "parquet")), encoding="utf-8")
    with browser.new_page(viewport={"width": 703, "height": 1000}) as tab:
        tab.goto(file.as_uri())
        tab.emulate_media(media="print")
        tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        wide = tab.evaluate(
            "[...document.querySelectorAll('table, svg, td, th, section')]"
            ".filter(one => one.getBoundingClientRect().right > 703).map(one => one.tagName + one.textContent)"
        )
        assert wide == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= 703
        assert tab.pdf(format="A4").startswith(b"%PDF")

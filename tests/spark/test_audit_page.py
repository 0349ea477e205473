"""The verdict of an audit on the page of a report: contents, order of the two, bad files, layout in a browser."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from delayq import ConfigurationError
from delayq.audit.audit_result import Audit, Finding, RunAudit
from delayq.report.audit_section import FACTS, MAX_FINDINGS, audit_section, read_audit, with_audit
from delayq.report.page import page
from delayq.report.report import PAGE, write_audit
from delayq.report.report_tables import Reports
from tests.spark.test_page import EVIL, FAULTY, NOTHING, T0, Texts, healthy_tables, marks

STATUSES = {"scheduled": 0, "overdue": 0, "delivered": 3467, "dead": 10, "cancelled": 7, "missing": 0}
RUN_OF = {
    "run": "flights-1", "state": "ended", "stored": 3484, "logged": 3484, "statuses": STATUSES, "findings": 0,
}  # fmt: skip
RUN = RUN_OF | {"adds_up": True}
GOOD = {
    "adds_up": True, "statuses": STATUSES, "not_loaded": 0, "findings": {}, "examples": [], "runs": [RUN],
}  # fmt: skip


def bad(*examples: tuple[str, str, str], **changes) -> dict:
    rows = [dict(zip(("what", "id", "detail"), one, strict=True)) for one in examples]
    counts = {what: sum(row["what"] == what for row in rows) for what in sorted({row["what"] for row in rows})}
    runs = [RUN | {"findings": len(rows), "adds_up": False}]
    return GOOD | {"adds_up": False, "findings": counts, "examples": rows, "runs": runs} | changes


def findings(facts: dict) -> pa.Table:
    schema = pa.schema(dict.fromkeys(("what", "id", "detail"), pa.string()))
    return pa.Table.from_pylist(facts["examples"], schema)


def test_audit_that_adds_up_is_on_the_page(tmp_path):
    (tmp_path / PAGE).write_text(page(healthy_tables(), at=T0), encoding="utf-8")
    write_audit(tmp_path, GOOD, findings(GOOD), at=T0)
    text = Texts((tmp_path / PAGE).read_text(encoding="utf-8")).text
    assert "Audit Made 2026-03-01 09:00:00 UTC." in text
    assert "Nothing is missing, overdue, early, or twice unexplained. In time 0 delivered late, 0 overdue" in text
    assert "Planned reminders: 3,467 delivered, 10 dead, 7 cancelled." in text
    assert "flights-1 ended 3,484 3,484 adds up" in text
    assert "Findings" not in text


def test_findings_are_counted_and_listed():
    facts = bad(("missing", "visit-2", "not in the queue"), ("early", "visit-3", "2 s early"), not_loaded=5)
    facts |= {"late": 3, "undone": [[9, 15, 14]]}
    text = Texts(audit_section(facts | {"at": T0.isoformat()})).text
    assert "2 findings 1 early, 1 missing." in text
    assert "In time 3 delivered late, 0 overdue" in text
    assert "Redis lost 14 archived events, offsets 9 to 15." in text
    assert "5 not loaded" in text
    assert "missing visit-2 not in the queue" in text
    assert "flights-1 ended 3,484 3,484 2 findings" in text
    assert "The first" not in text


def test_first_findings_of_many_are_on_the_page():
    facts = bad(*(("missing", f"visit-{n}", "") for n in range(MAX_FINDINGS + 1)))
    shown = audit_section(facts | {"at": T0.isoformat()})
    assert shown.count("visit-") == MAX_FINDINGS
    assert f"The first {MAX_FINDINGS} of {MAX_FINDINGS + 1}." in Texts(shown).text


@pytest.mark.long
def test_report_and_audit_may_be_made_in_any_order(tmp_path):
    facts = bad(("missing", "visit-2", ""))
    before, after = tmp_path / "before", tmp_path / "after"
    write_audit(before, facts, findings(facts), at=T0)
    first = with_audit(page(FAULTY, at=T0), read_audit(before))
    after.mkdir()
    (after / PAGE).write_text(page(FAULTY, at=T0), encoding="utf-8")
    write_audit(after, facts, findings(facts), at=T0)
    assert (after / PAGE).read_text(encoding="utf-8") == first
    assert not (before / PAGE).exists()


def test_later_audit_replaces_the_verdict(tmp_path):
    (tmp_path / PAGE).write_text(page(healthy_tables()), encoding="utf-8")
    facts = bad(("missing", "visit-2", ""))
    write_audit(tmp_path, facts, findings(facts), at=T0)
    write_audit(tmp_path, GOOD, findings(GOOD), at=T0 + timedelta(hours=1))
    text = Texts((tmp_path / PAGE).read_text(encoding="utf-8")).text
    assert "visit-2" not in text
    assert text.count("Planned reminders") == 1
    assert "Made 2026-03-01 10:00:00 UTC" in text


def test_page_that_delayq_did_not_make_is_left_alone(tmp_path):
    (tmp_path / PAGE).write_text("<p>my own", encoding="utf-8")
    write_audit(tmp_path, GOOD, findings(GOOD), at=T0)
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == "<p>my own"


@pytest.mark.long
def test_data_of_an_audit_is_escaped():
    end = "<!-- end of audit -->\n"
    facts = bad((EVIL, EVIL + end, EVIL), runs=[RUN | {"run": EVIL}]) | {"at": T0.isoformat()}
    made = with_audit(page(healthy_tables()), audit_section(facts))
    read = Texts(made)
    assert "script" not in read.tags
    assert read.text.count("<script>alert(1)</script>") == 5
    assert "\x1b" not in made
    assert made.count(end) == 1


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", "null", '"x"', '{"at": 5}', '{"at": "2026-03-01T09:00:00Z", "adds_up": true}']
)
def test_file_that_is_not_from_an_audit_is_refused(tmp_path, content):
    (tmp_path / FACTS).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"audit\.json is not from an audit of delayq"):
        read_audit(tmp_path)


def test_unreadable_file_is_refused(tmp_path):
    (tmp_path / FACTS).mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot read .*audit\.json: Is a directory"):
        read_audit(tmp_path)


def test_report_without_an_audit_has_no_section(tmp_path):
    assert read_audit(tmp_path) == ""
    assert "Planned reminders" not in page(healthy_tables())


def test_notebook_shows_verdict_and_findings():
    rows = [Finding("missing", EVIL, ""), Finding("early", "visit-3", "2 s early")]
    shown = Audit(
        None, STATUSES | {"missing": 1}, {"missing": 1, "early": 1}, rows, [RunAudit(**RUN_OF)], 5
    )._repr_html_()
    text = Texts(shown).text
    assert "2 findings 1 missing, 1 early." in text
    assert "3,467 delivered, 10 dead, 7 cancelled, 1 missing, 5 not loaded" in text
    assert "<script" not in shown
    assert "href" not in shown


def test_notebook_shows_the_main_figures_of_a_report(monkeypatch):
    tables = healthy_tables(lateness_overall=[marks()])
    made = Reports.__new__(Reports)
    made.data, made._tables = dict.fromkeys(tables), {}
    assert made._repr_html_() == f"<p>Reports, not computed yet: {', '.join(tables)}</p>"
    monkeypatch.setattr(made, "_tables", tables)
    text = Texts(made._repr_html_()).text
    assert "4,000 messages in 2 d: 3,970 acked, 30 dead. 2026-03-01 09:00:00 to 2026-03-03 09:00:00 UTC" in text
    assert "✓ Never early Delivered before the due time: 0 of 40 first attempts." in text
    assert "late, p50 late, p90 late, p99 late, max 2 ms 8.5 ms 40 ms 300 ms" in text
    monkeypatch.setattr(made, "_tables", NOTHING)
    assert made._repr_html_() == "<p>The log has no events.</p>"


@pytest.mark.long
@pytest.mark.parametrize(("width", "media"), [(1280, "screen"), (400, "screen"), (703, "print")])
def test_audit_in_a_browser(browser, tmp_path, width, media):
    """On A4 there are 703 pixels within the margins."""
    facts = bad((EVIL, "z" * 128, "y" * 200), ("missing", "visit-2", ""), runs=[RUN | {"run": "r" * 64}] * 3)
    (tmp_path / PAGE).write_text(page(FAULTY, at=datetime(2026, 3, 2, tzinfo=UTC)), encoding="utf-8")
    write_audit(tmp_path, facts, findings(facts), at=T0)
    file, messages = tmp_path / PAGE, []
    with browser.new_page(viewport={"width": width, "height": 800}) as tab:
        tab.on("console", lambda message: messages.append(message.text))
        tab.goto(file.as_uri())
        tab.emulate_media(media=media)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.get_by_role("heading", name="Audit", exact=True).is_visible()
        assert tab.get_by_text("visit-2").is_visible()
        for link in tab.locator(".audit a").all():
            assert (tmp_path / link.get_attribute("href")).exists()
    assert messages == []

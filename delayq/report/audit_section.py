"""The verdict of an audit on the page of a report.

An audit leaves its facts in the report's folder, so that report and audit may be made in any order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from delayq.errors import ConfigurationError
from delayq.report.html import TableColumn, columns, section, table, text
from delayq.values.text import iso, pluralize

FACTS = "audit.json"
"""The file in the report's folder with the facts of the last audit."""
MAX_FINDINGS = 20
"""Findings on the page; the table has more."""
_LINKS = '<a href="findings.csv">csv</a>, <a href="findings.parquet">parquet</a>'

START, END = "<!-- audit -->\n", "<!-- end of audit -->\n"
"""Where the section is on the page. Data on it is escaped, so nothing else looks like that."""


def to_json(facts: Mapping[str, Any], at: datetime) -> str:
    """Return the facts of an audit that was made `at` a time, as `read_audit` reads them."""
    return json.dumps({"at": iso(at), **facts}, indent=1) + "\n"


def read_audit(folder: Path) -> str:
    """Return the section on the last audit in a report's folder as HTML; '' if there was none.

    Raises `ConfigurationError` for a file that is not readable or not from an audit.
    """
    file = folder / FACTS
    try:
        return audit_section(json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{file} is not from an audit of delayq: move it, or audit again") from error


def with_audit(page: str, shown: str) -> str:
    """Return the page of a report with this section on the audit, in place of an older one.

    A text without a place for it is returned unchanged.
    """
    head, start, rest = page.partition(START)
    _, end, tail = rest.partition(END)
    return f"{head}{start}{shown}{end}{tail}" if end else page


def audit_section(facts: Mapping[str, Any]) -> str:
    """Return the verdict of an audit as a section: when it was made, each run, and the first findings."""
    at = datetime.fromisoformat(facts["at"]).astimezone(UTC)
    about = f"Made {at:%Y-%m-%d %H:%M:%S} UTC. What happened since is not in it."
    return section("Audit", about, audit_html(facts, links=True), style="audit") + "\n"


def audit_html(facts: Mapping[str, Any], *, links: bool = False) -> str:
    """Return the verdict, each run and the first findings of an audit; with `links` to the tables of findings."""
    parts = [_verdict(facts)]
    if facts["runs"]:
        parts += ["<h3>Runs</h3>", _runs(facts["runs"])]
    if facts["examples"]:
        parts += ["<h3>Findings</h3>", _findings(facts)]
        parts += [f"<p>As a table: {_LINKS}</p>"] if links else []
    return "".join(parts)


def _verdict(facts: Mapping[str, Any]) -> str:
    good, title, told = bool(facts["adds_up"]), "Adds up", "Nothing is missing, overdue, early, or twice unexplained."
    if not good:
        found = facts["findings"] or {"missing": facts["statuses"]["missing"]}
        title, told = pluralize(sum(found.values()), "finding"), f"{_numbers(found)}."
    counts = _numbers(facts["statuses"] | ({"not loaded": facts["not_loaded"]} if facts["not_loaded"] else {}))
    late, overdue = facts.get("late", 0), facts["statuses"].get("overdue", 0)
    in_time = (f"{late:,} delivered late", f"{overdue:,} overdue")
    undone = "".join(
        f"<p>Redis lost {one[2]:,} archived events, offsets {one[0]} to {one[1]}.</p>"
        for one in facts.get("undone", ())
    )
    return (
        f'<ul class="checks">{_check(title, told, good=good)}'
        f"{_check('In time', ', '.join(in_time), good=not late + overdue)}</ul>{undone}"
        f"<p>Planned reminders: {text(counts)}.</p>"
    )


def _check(title: str, told: str, *, good: bool) -> str:
    return f'<li class="{"good" if good else "bad"}"><b>{text(title)}</b><span>{text(told)}</span></li>'


def _runs(runs: list[dict[str, Any]]) -> str:
    rows = [run | {"verdict": "adds up" if run["adds_up"] else pluralize(run["findings"], "finding")} for run in runs]
    shown = columns(run="id", state="word", stored="number", logged="number", verdict="word")
    return table(rows, shown)


def _findings(facts: Mapping[str, Any]) -> str:
    number = max(sum(facts["findings"].values()), len(facts["examples"]))
    rows = facts["examples"][:MAX_FINDINGS]
    first = f"<p>The first {MAX_FINDINGS} of {number:,}.</p>" if number > MAX_FINDINGS else ""
    shown = [TableColumn("what", "word", title="finding"), *columns(id="id", detail="text")]
    return table(rows, shown) + first


def _numbers(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "none"

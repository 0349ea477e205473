"""Checks a history: which of the rules it breaks, each with the shortest part of the history that shows it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from delayq.testing.torture.history import FaultRecord, HistoryError, Line, read
from delayq.testing.torture.rules.history_rules import HISTORY_RULES, Finding
from delayq.testing.torture.rules.message_rules import MESSAGE_RULES, repeated_starts
from delayq.testing.torture.rules.order_rules import starts_out_of_order
from delayq.testing.torture.rules.start_rules import lose_limits, starts_of_tripped, starts_over_limits
from delayq.testing.torture.rules.timelines import History, Step, gather
from delayq.testing.torture.workload import is_planted

_DELIVERY = ("conservation", "provenance", "never early", "bounded deliveries", "leases", "fencing", "dead letter")
_START = ("pauses", "limits", "breakers", "order")
RULES = (*_DELIVERY, "counters", "doubt", "liveness", "leftovers", "duplicates", *_START, "answers")
"""The rules, numbered as in the handbook."""
_START_RULES = {"limits": starts_over_limits, "breakers": starts_of_tripped, "order": starts_out_of_order}
MAX_SHOWN = 3
"""Violations of a rule that are shown; the others are counted."""


class ReportedViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A violation as it is shown."""

    rule: str
    number: int
    """Of the rule, from 1 to 16."""
    id: str
    """The message; '' if it concerns all of them."""
    text: str
    history: list[str]
    """The shortest part of the history that shows it, line by line."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check. Counts of messages, unless stated otherwise."""

    right: bool
    processes: int
    lines: int
    messages: int
    deliveries: int
    starts: int
    settled: int
    dead: int
    in_doubt: int
    """Calls without a reply, or whose effect the server may have lost."""
    faults: dict[str, int]
    duplicates: int
    """Repeated starts that no failure caused."""
    explained: dict[str, int]
    """The duplicates that a fault explains, by its kind."""
    broken: dict[str, int]
    """Violations by rule."""
    violations: list[ReportedViolation]
    """The shortest of them."""
    unchecked: list[str]
    """What this history cannot show, a sentence each."""


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return the history files: the given files, and the .jsonl files of the given folders."""
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not found or not all(file.is_file() for file in found):
            raise HistoryError(f"{path}: no history (*.jsonl) found")
        files += found
    return files


def check(paths: Iterable[Path]) -> CheckResult:
    """Read histories and check them; raise `HistoryError` if there is none."""
    return check_lines(read(find_files(paths)))


def check_lines(lines: Iterable[tuple[str, Line]]) -> CheckResult:
    """Check the lines of a history."""
    history = gather(lines)
    violations: dict[str, list[Finding]] = defaultdict(list)
    for rule, finding in _violations(history):
        violations[rule].append(finding)
    timelines = history.timelines.values()
    repeated = [start for timeline in timelines for start in repeated_starts(history, timeline)]
    steps = Counter(step.op for step in history.steps())
    unknown = {(step.process, step.call) for step in history.steps() if step.outcome == "unknown" and not step.waits}
    return CheckResult(
        right=not violations,
        processes=len(history.processes),
        lines=history.lines,
        messages=len(timelines),
        deliveries=steps["claim"],
        starts=steps["start"],
        settled=sum(any(step.certain for step in timeline.of("ack")) for timeline in timelines),
        dead=sum(len(timeline.dead) for timeline in timelines),
        in_doubt=len(history.unknown_claims) + len(unknown),
        faults=dict(Counter(fault.kind for fault in history.faults)),
        duplicates=len(repeated),
        explained=dict(Counter(cause.kind for _, _, cause in repeated if cause)),
        broken={rule: len(violations[rule]) for rule in RULES if rule in violations},
        violations=[
            ReportedViolation(rule=rule, number=number, id=id, text=text, history=list(_history_lines(history, steps)))
            for number, rule in enumerate(RULES, 1)
            for id, text, steps in sorted(violations.get(rule, ()), key=lambda finding: len(finding[2]))[:MAX_SHOWN]
        ],
        unchecked=_unchecked(history),
    )


def _violations(history: History) -> Iterator[tuple[str, Finding]]:
    sent = (timeline for timeline in history.timelines.values() if not is_planted(timeline.id))
    for timeline in sent:
        for name, rule in MESSAGE_RULES.items():
            yield from ((name, (timeline.id, *found)) for found in rule(history, timeline))
    for name, history_rule in (HISTORY_RULES | _START_RULES).items():
        yield from ((name, finding) for finding in history_rule(history))


def _history_lines(history: History, steps: tuple[Step, ...]) -> Iterator[str]:
    """Yield the steps of a violation in order, with the faults between them."""
    if not steps:
        return
    first, last = min(step.began for step in steps), max(step.began for step in steps)
    lines: list[Step | FaultRecord] = list(dict.fromkeys(steps))
    lines += [fault for fault in history.faults if fault.at <= last and fault.until >= first]
    for line in sorted(lines, key=lambda line: line.began if isinstance(line, Step) else line.at):
        if isinstance(line, Step):
            yield str(line)
        else:
            target = line.process or "server or network"
            yield f"{line.at / 1e6:.6f} {(line.until - line.at) / 1000:+10.1f} ms  {target:<12} fault: {line.kind}"


def _unchecked(history: History) -> list[str]:
    reasons = []
    if history.final is None:
        reasons.append("no final scan: loss, the dead letter, counters, liveness and leftovers are not checked")
    if history.settings is None:
        reasons.append("no settings of the queue: liveness is not checked")
    if history.settings and not history.settings.closes_names:
        reasons.append("the queue is over partitions: names that callbacks close are not checked")
    if history.rolled_back:
        reasons.append("the server lost writes: counters and the order of attempts and leases are not checked")
    if history.settings and history.settings.limits and lose_limits(history):
        reasons.append("the server may have lost the limits: they are checked until then")
    return reasons


def report_lines(result: CheckResult) -> Iterator[str]:
    """Yield the result as text, line by line."""
    yield (
        f"{result.messages:,} messages, {result.deliveries:,} deliveries and {result.starts:,} starts in "
        f"{result.lines:,} lines of {result.processes} processes, {result.in_doubt:,} calls with an unknown outcome"
    )
    if result.faults:
        yield "faults: " + ", ".join(f"{kind} {count:,}" for kind, count in sorted(result.faults.items()))
    if result.duplicates:
        why = ", ".join(f"{count:,} by {kind}" for kind, count in sorted(result.explained.items())) or "none explained"
        yield f"duplicates: {result.duplicates:,} ({why})"
    yield from result.unchecked
    for violation in result.violations:
        message = f" of {violation.id}" if violation.id else ""
        yield f"VIOLATION of rule {violation.number}, {violation.rule}{message}: {violation.text}"
        yield from (f"    {line}" for line in violation.history)
    if result.broken:
        yield "broken: " + ", ".join(f"{rule} {count:,}" for rule, count in result.broken.items())
    elif result.unchecked:
        yield "right, as far as it was checked"
    else:
        yield f"right: all {len(RULES)} rules hold"

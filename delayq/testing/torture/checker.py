"""The verdict on a history: which of the twelve rules it breaks, and the least of it that shows so."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from delayq.torture.breach import RULES, Breach
from delayq.torture.history import Fault, HistoryError, Line, read
from delayq.torture.rules import EACH, repeated
from delayq.torture.stories import History, Step, gather
from delayq.torture.whole import WHOLE

TOLD = 3
"""Violations of a rule that are told at length; the others are counted."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that was broken."""

    rule: str
    number: int
    """Of the rule, from 1 to 12."""
    id: str
    """The message, '' for what concerns them all."""
    text: str
    history: list[str]
    """The least of the history that shows it, a line each."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a history shows. Counts of messages, unless it says otherwise."""

    right: bool
    processes: int
    lines: int
    messages: int
    deliveries: int
    starts: int
    settled: int
    dead: int
    in_doubt: int
    """Calls that were never answered, or whose answer the server may have lost."""
    faults: dict[str, int]
    duplicates: int
    """Starts that no failure asked for."""
    explained: dict[str, int]
    """Those of the duplicates that a fault explains, by its kind."""
    broken: dict[str, int]
    """Violations by rule."""
    violations: list[Violation]
    """The plainest of them."""
    unchecked: list[str]
    """What this history cannot show, a sentence each."""
    unjudged: list[str]
    """Rules without a meaning for the engine, each with the reason."""


def find_files(places: Iterable[Path]) -> list[Path]:
    """Return the files of histories: those named, and of a folder all that end in .jsonl."""
    files: list[Path] = []
    for place in places:
        found = sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
        if not found or not all(file.is_file() for file in found):
            raise HistoryError(f"{place}: no history there")
        files += found
    return files


def check(places: Iterable[Path]) -> Verdict:
    """Read histories and judge them; `HistoryError` if there is none."""
    return judge(read(find_files(places)))


def judge(lines: Iterable[tuple[str, Line]]) -> Verdict:
    """Judge the lines of a history."""
    history = gather(lines)
    breaches: dict[str, list[Breach]] = defaultdict(list)
    for breach in _find(history):
        if breach.rule not in history.promises.unjudged:
            breaches[breach.rule].append(breach)
    again = [found for story in history.stories.values() for found in repeated(history, story)]
    steps = Counter(step.op for story in history.stories.values() for step in story.steps)
    return Verdict(
        right=not breaches,
        processes=len(history.processes),
        lines=history.lines,
        messages=len(history.stories),
        deliveries=steps["claim"],
        starts=steps["start"],
        settled=sum(any(step.op == "ack" and step.did for step in story.steps) for story in history.stories.values()),
        dead=sum(len(story.dead) for story in history.stories.values()),
        in_doubt=len(history.doubtful_claims) + _doubtful_calls(history),
        faults=dict(Counter(fault.kind for fault in history.faults)),
        duplicates=len(again),
        explained=dict(Counter(why.kind for _, _, why in again if why)),
        broken={rule: len(breaches[rule]) for rule in RULES if rule in breaches},
        violations=[
            Violation(
                rule=rule,
                number=RULES.index(rule) + 1,
                id=breach.id,
                text=breach.text,
                history=list(_told(history, breach)),
            )
            for rule in RULES
            for breach in sorted(breaches.get(rule, ()), key=lambda breach: len(breach.steps))[:TOLD]
        ],
        unchecked=_unchecked(history),
        unjudged=[f"{rule}: {why}" for rule, why in history.promises.unjudged.items()],
    )


def _find(history: History) -> Iterator[Breach]:
    for story in history.stories.values():
        for rule in EACH:
            yield from rule(history, story)
    for whole in WHOLE:
        yield from whole(history)


def _doubtful_calls(history: History) -> int:
    doubtful = (step for story in history.stories.values() for step in story.steps if step.outcome == "unknown")
    return len({(step.process, step.call) for step in doubtful})


def _told(history: History, breach: Breach) -> Iterator[str]:
    """Yield the steps of a violation in order, with the faults that came between."""
    if not breach.steps:
        return
    first, last = min(step.began for step in breach.steps), max(step.began for step in breach.steps)
    lines: list[Step | Fault] = list(dict.fromkeys(breach.steps))
    lines += [fault for fault in history.faults if fault.at <= last and fault.until >= first]
    for line in sorted(lines, key=lambda line: line.began if isinstance(line, Step) else line.at):
        if isinstance(line, Step):
            yield str(line)
        else:
            whose = line.process or "server or network"
            yield f"{line.at / 1e6:.6f} {(line.until - line.at) / 1000:+10.1f} ms  {whose:<12} fault: {line.kind}"


def _unchecked(history: History) -> list[str]:
    found = []
    if history.final is None:
        found.append("no final scan: not checked are loss, the dead letter, counters, liveness and leftovers")
    if history.rules is None:
        found.append("no rules of the queue: liveness is not checked")
    if history.rolled_back:
        found.append("the server lost writes: not checked are counters and the order of attempts and leases")
    return found


def tell(verdict: Verdict) -> Iterator[str]:
    """Yield a verdict as text, a line each."""
    yield (
        f"{verdict.messages:,} messages, {verdict.deliveries:,} deliveries and {verdict.starts:,} starts in "
        f"{verdict.lines:,} lines of {verdict.processes} processes, {verdict.in_doubt:,} calls in doubt"
    )
    if verdict.faults:
        yield "faults: " + ", ".join(f"{kind} {count:,}" for kind, count in sorted(verdict.faults.items()))
    if verdict.duplicates:
        why = ", ".join(f"{count:,} by {kind}" for kind, count in sorted(verdict.explained.items())) or "none explained"
        yield f"duplicates: {verdict.duplicates:,} ({why})"
    yield from verdict.unchecked
    yield from (f"without a meaning here is {text}" for text in verdict.unjudged)
    for violation in verdict.violations:
        whose = f" of {violation.id}" if violation.id else ""
        yield f"VIOLATION of rule {violation.number}, {violation.rule}{whose}: {violation.text}"
        yield from (f"    {line}" for line in violation.history)
    if verdict.broken:
        yield "broken: " + ", ".join(f"{rule} {count:,}" for rule, count in verdict.broken.items())
    else:
        number = ("twelve", "eleven", "ten", "nine")[len(verdict.unjudged)]
        yield f"right: all {number} rules hold" if not verdict.unchecked else "right, as far as it was checked"

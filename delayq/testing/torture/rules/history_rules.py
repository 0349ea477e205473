"""The rules about all messages together: totals, calls with several messages, and what is left at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from delayq.testing.torture.rules.timelines import History, Step, Timeline

Finding = tuple[str, str, tuple[Step, ...]]
"""A violation: the message, if there is one, the text, and the shortest part of the history that shows it."""
_COUNTED = {"send": "sent", "nack": "nacked", "cancel": "cancelled", "ack": "settled"}


def counters(history: History) -> Iterator[Finding]:
    """The server's totals are those of the history."""
    if history.final is None or history.rolled_back:
        return
    certain: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for timeline in history.timelines.values():
        for step in timeline.steps:
            name = _COUNTED.get(step.op, "")
            if step.certain and not _is_uncounted(timeline, step):
                certain[name] += 1
            elif step.possible:
                unknown[name] += 1
    kept = Counter(history.final.counters)
    kept["settled"] = kept["acked"] + kept["discarded"]
    for name in _COUNTED.values():
        low, high = certain[name], certain[name] + unknown[name]
        if not low <= kept[name] <= high:
            yield "", f"{name}: the server counts {kept[name]}, the history {low} to {high}", ()


def _is_uncounted(timeline: Timeline, step: Step) -> bool:
    """Return whether a step may be one that no total counts: a replacement, or a failure of what is cancelled then."""
    may_stop = step.op == "nack" and step.status == "2" and timeline.asked_to_stop_before(step)
    return may_stop or (step.op == "send" and step.status == "2")


def whole_calls(history: History) -> Iterator[Finding]:
    """A call with an unknown outcome that sent several messages sent all of them or none."""
    batches: dict[tuple[str, int], list[Timeline]] = defaultdict(list)
    for timeline in history.timelines.values():
        sends = timeline.of("send")
        if len(sends) == 1 and sends[0].outcome == "unknown" and not sends[0].replaces:
            batches[sends[0].process, sends[0].call].append(timeline)
    if history.final is None or history.rolled_back or history.purges or history.final.counters.get("trimmed"):
        return
    for (process, call), timelines in batches.items():
        sent = [timeline for timeline in timelines if timeline.living or timeline.dead or len(timeline.steps) > 1]
        if sent and len(sent) < len(timelines):
            missing = next(timeline for timeline in timelines if timeline not in sent)
            text = f"call {call} of {process} was executed in part: {len(sent)} of {len(timelines)} messages"
            yield missing.id, text, (missing.steps[0], *sent[0].steps)


def paused(history: History) -> Iterator[Finding]:
    """While the queue is paused, no claim gets a message; while a name is, none of that name."""
    pauses = [fault for fault in history.faults if fault.kind in ("pause", "pause-name")]
    for step in history.steps() if pauses else ():
        if step.op == "claim":
            for one in pauses:
                if one.at < step.began and step.ended < one.until and one.name in ("", step.name):
                    yield step.id, f"claimed while {one.name or 'the queue'} was paused", (step,)


def leftovers(history: History) -> Iterator[Finding]:
    """Nothing is left behind: every field belongs to a message, every message is in one structure."""
    for text in history.final.leftovers if history.final else ():
        yield "", text, ()


def answers(history: History) -> Iterator[Finding]:
    """Every sender is told of its own message, and what a call about it was answered."""
    for process, one in history.told:
        sends = [step for step in history.timeline(one.id).of("send") if step.process == process]
        if one.told != one.id:
            yield one.id, f"its sender was told of {one.told}", tuple(sends)
        elif one.status not in {step.status for step in sends}:
            yield one.id, f"its sender was told {one.status}, which no call was answered", tuple(sends)


HISTORY_RULES = {
    "counters": counters,
    "doubt": whole_calls,
    "leftovers": leftovers,
    "pauses": paused,
    "answers": answers,
}

"""What must be true of a history as a whole: totals, calls of several messages, and what is left at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from delayq.torture.breach import Breach, Breaches
from delayq.torture.stories import History, Story


def counters(history: History) -> Breaches:
    """The totals that the server keeps are those of the history."""
    if history.final is None or history.rolled_back:
        return
    surely: Counter[str] = Counter()
    doubtful: Counter[str] = Counter()
    for story in history.stories.values():
        for step in story.steps:
            for name in _COUNTED.get(step.op, ()):
                if step.did and not (step.op == "send" and step.digit == "2"):
                    surely[name] += 1
                elif step.may:
                    doubtful[name] += 1
    kept = history.final.counters
    done = kept.get("acked", 0) + kept.get("discarded", 0)
    totals = {"sent": kept.get("sent", 0), "nacked": kept.get("nacked", 0), "cancelled": kept.get("cancelled", 0)}
    for name, total in {**totals, "settled": done}.items():
        least, most = surely[name], surely[name] + doubtful[name]
        if not least <= total <= most:
            yield Breach("counters", "", f"{name}: the server counts {total}, the history {least} to {most}")


_COUNTED = {"send": ("sent",), "nack": ("nacked",), "cancel": ("cancelled",), "ack": ("settled",)}


def whole_calls(history: History) -> Breaches:
    """A call in doubt that sent several messages sent all of them or none."""
    batches: dict[tuple[str, int], list[Story]] = defaultdict(list)
    for story in history.stories.values():
        sends = story.of("send")
        if len(sends) == 1 and sends[0].outcome == "unknown" and not sends[0].replaces:
            batches[sends[0].process, sends[0].call].append(story)
    if history.final is None or history.rolled_back or history.purges or history.final.counters.get("trimmed"):
        return
    for (process, call), stories in batches.items():
        there = [story for story in stories if story.living or story.dead or len(story.steps) > 1]
        if there and len(there) < len(stories):
            gone = next(story for story in stories if story not in there)
            text = f"call {call} of {process} was carried out in part: {len(there)} of {len(stories)} messages"
            yield Breach("doubt", gone.id, text, (gone.steps[0], *there[0].steps))


def leftovers(history: History) -> Breaches:
    """Nothing is left behind: every field belongs to a message, every message stands in one place."""
    for text in history.final.leftovers if history.final else ():
        yield Breach("leftovers", "", text)


WHOLE: tuple[Callable[[History], Breaches], ...] = (counters, whole_calls, leftovers)
"""The rules about all messages together."""

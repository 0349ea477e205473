"""What must hold of every move, said without the model's knowledge of how each call works."""

from __future__ import annotations

import math
from dataclasses import replace

from delayq.values.states import TRANSITIONS
from tests.model.limiting import QUEUE
from tests.model.model import Message, Model
from tests.model.world import AHEAD, NOW, Memory

_NAMES = {"leased": "active", "ranked": "ready"}
_ALLOWED = {(one.script, one.source, one.target) for one in TRANSITIONS}
_ALLOWED.add(("pending_to_unack", "pending", "active"))  # a promotion and a claim in one
_ALLOWED |= {("turn", "pending", "active"), ("turn", "active", None)}  # the same, and an ack

_SENDS = {"send_one": "send", "debounce": "send"}


def check(script: str, before: Model, after: Model, memory: Memory) -> None:
    """Look at one move: what stood before it, what is stored after it (the model has been compared with that)."""
    script = _SENDS.get(script, script)
    for id in before.messages.keys() | after.messages.keys():
        _every_change_is_a_transition(script, id, before, after)
    _what_has_ended_lies_in_the_dead_letter_or_was_settled(script, before, after)
    _tokens_rise(before, after, memory)
    _what_waits_follows_what_ends(script, before, after)
    _nothing_is_early(script, before, after)
    _no_more_deliveries_than_retries_allow(after)
    _what_is_completed_is_kept(script, before, after)
    _nothing_starts_over_a_limit(script, before, after)
    _what_waits_for_a_limit_starts_as_soon_as_it_may(after)


def check_unchanged(before: Model, after: Model) -> None:
    """Say that nothing is stored otherwise, as the server has found: the model must think so too."""
    assert before.dead.keys() == after.dead.keys()
    # A replacement by the same begins a life, which nobody can tell before it was delivered.
    lives = [{id: replace(m, life=m.first and m.life) for id, m in one.messages.items()} for one in (before, after)]
    assert lives[0] == lives[1]
    assert (before.token, before.done) == (after.token, after.done)


def _state(message: Message | None) -> str | None:
    return message and _NAMES.get(message.state, message.state)


def _every_change_is_a_transition(script: str, id: str, before: Model, after: Model) -> None:
    was, is_now = before.messages.get(id), after.messages.get(id)
    if script == "purge":
        assert is_now is None
        return
    if was == is_now:
        return
    if was and is_now and was.life == is_now.life and was.state == is_now.state:
        assert script in {"extend", "ready_to_unack", "reschedule"}, f"{script} changes {id}, which is {was.state}"
        return
    if was and is_now and was.life != is_now.life:
        waited = before.successors.get(id)
        if script != "send" and waited and waited.message.payload == is_now.payload:
            assert id not in after.successors, f"{script} delivers what waits to follow {id}, and keeps it"
            is_now = None
        else:
            assert script == "send", f"{script} begins a new life of {id}"
    target = _state(is_now)
    if was and not is_now and len(after.dead) > len(before.dead):
        target = "dead"
    source = _state(was)
    if was and not is_now and script == "complete":
        target = "completed"
    if is_now and not was and script == "redrive":
        source = "dead"
    assert (script, source, target) in _ALLOWED, f"{script} moves {id} from {source} to {target}"


def _what_has_ended_lies_in_the_dead_letter_or_was_settled(script: str, before: Model, after: Model) -> None:
    ended = [one for id, one in before.messages.items() if id not in after.messages or _followed(id, before, after)]
    died = after.dead.keys() - before.dead.keys()
    if script in {"reject", "kill", "collect_garbage"}:
        assert {(after.dead[entry].message.id, after.dead[entry].message.payload) for entry in died} == {
            (message.id, message.payload) for message in ended
        }
    else:
        assert not died
        assert not ended or script in {"ack", "complete", "cancel", "purge", "turn"}, f"{script} makes {ended} vanish"


def _followed(id: str, before: Model, after: Model) -> bool:
    """Tell whether what waited to follow a message has taken its place: the message has ended."""
    is_new = before.messages[id].life != after.messages[id].life
    return (
        is_new
        and id in before.successors
        and id not in after.successors
        and after.totals["sent"] > before.totals["sent"]
    )


def _what_is_completed_is_kept(script: str, before: Model, after: Model) -> None:
    if script == "complete":
        ended = {id for id in before.messages if id not in after.messages or _followed(id, before, after)}
        kept = {id for id in after.completed if after.completed[id] != before.completed.get(id)}
        assert kept == ended, f"complete ends {ended} and keeps the results of {kept}"
    else:
        forgotten = before.completed.keys() - after.completed.keys()
        assert not forgotten or script == "collect_garbage", f"{script} deletes the results of {forgotten}"
        assert all(before.completed[id][0] <= NOW for id in forgotten), "a result is deleted before its time"
        assert after.completed.items() <= before.completed.items()


def _nothing_starts_over_a_limit(script: str, before: Model, after: Model) -> None:
    started = [m for id, m in after.messages.items() if m.state == "leased" and m.token != _token(before, id)]
    for scope, one in before.limits.of.items() if started else ():
        assert script == "ready_to_unack", f"{script} starts what limits may hold back"
        named = [m for m in after.messages.values() if scope in {QUEUE, f"name:{m.name}"}]
        starts = sum(m in started for m in named)
        running = sum(m.state == "leased" for m in named)
        interval, burst = one.pace(NOW)
        assert not starts or not (one.is_paused(NOW) or one.held > NOW), f"starts while {scope} is closed"
        assert not starts or not one.places or running <= one.places, f"{running} of {scope} run at a time"
        assert not interval or starts <= burst, f"{starts} of {scope} start at once"


def _what_waits_for_a_limit_starts_as_soon_as_it_may(after: Model) -> None:
    limits = {one.number: one for one in after.limits.of.values()}
    for id, (number, _) in after.limits.lines.items():
        assert number in after.limits.gates, f"nobody looks at the line of {id} again"
        used = sum(place == number for place in after.limits.running.values())
        opens_at = limits[number].opens_at(NOW, used) if number in limits else 0
        assert after.limits.gates[number] <= max(math.ceil(opens_at / 1000) if opens_at < math.inf else opens_at, NOW)


def _tokens_rise(before: Model, after: Model, memory: Memory) -> None:
    known = [0, before.token, *(receipt.token for held in memory.receipts for receipt in held)]
    drawn = [m.token for id, m in after.messages.items() if m.token and m.token != _token(before, id)]
    assert len(set(drawn)) == len(drawn), "two deliveries have one token"
    assert all(token > max(known) for token in drawn), "a token has been given out before"


def _token(model: Model, id: str) -> int:
    return model.messages[id].token if id in model.messages else 0


def _what_waits_follows_what_ends(script: str, before: Model, after: Model) -> None:
    assert after.successors.keys() <= after.messages.keys(), f"{script} ends a message and leaves its successor"
    for id, waited in before.successors.items():
        if id not in after.successors and script not in {"cancel", "purge", "send"}:
            message = after.messages[id]
            assert (message.payload, message.due, message.state) == (waited.message.payload, waited.due, "pending")


def _nothing_is_early(script: str, before: Model, after: Model) -> None:
    for id, message in after.messages.items():
        was = before.messages.get(id)
        if was and was.state == "pending" and message.state != "pending" and message.life == was.life:
            # A consumer holds what a turn has claimed until it is due.
            assert was.due <= NOW + (AHEAD if script == "turn" else 0), f"{id} is delivered early"


def _no_more_deliveries_than_retries_allow(after: Model) -> None:
    for message in after.messages.values():
        charged = message.attempts - (message.state == "leased")
        if message.state == "garbage":
            assert (message.left, message.attempts) == (0, message.retries + 1)
        else:
            assert charged + message.left == message.retries, f"{message.id} has {message.left} retries left"

"""Actions: each is a form that is checked, done, logged with who did it, and answered with the page it came from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, tzinfo
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

from anyio import from_thread
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from delayq.broker.event_log import log_action_call
from delayq.broker.transport.operation import together
from delayq.errors import ConfigurationError, DelayqError, UnknownScheduleError
from delayq.safe_log import SafeLog
from delayq.values.text import clean, pluralize, truncate
from delayq.web.chosen_actions import MAX_CHOSEN, act_on_dead, act_on_messages, outcome_text
from delayq.web.edited_payload import edit_by_form
from delayq.web.message_pages import show_dead, show_message, show_messages
from delayq.web.queue_pages import show_limits, show_queue, show_schedules
from delayq.web.shown.rendering import FIELDS, RefusedForm, query
from delayq.web.shown.shown_times import exact_in, time_in, zone_of
from delayq.web.site import Site, site_of
from delayq.web.viewers import MAX_NAME, Viewer

if TYPE_CHECKING:
    from delayq.queue.delay_queue import DelayQueue

log = SafeLog("delayq.audit")

MAX_FIELDS = 20 + MAX_CHOSEN
_UNTOLD = ("payload", "seen")
"""Fields that are not logged: a payload may be private."""
MAX_LOGGED = 200
"""Characters of a field in the log."""


class Fields(dict[str, str]):
    """What a form had in its fields, what was chosen in it, and the time zone of its page."""

    zone: tzinfo = UTC
    chosen: tuple[str, ...] = ()
    """The messages that were chosen, by their ids or entries."""


class Done(NamedTuple):
    """What an action has done, and the page that shows it."""

    note: str
    page: str
    about: str = ""
    """The parameter of the page beside the queue, with its value in the form: the id of a message."""
    entry: str = ""
    """The entry of the dead letter that it was about, if any."""
    outcomes: Mapping[str, str] = {}
    """What became of each message that was chosen, by id or entry; the page is as it was."""


def _pause(queue: DelayQueue[Any], fields: Fields) -> Done:
    name = fields.get("name") or None
    what = queue.name if name is None else f"{name} of {queue.name}"
    page = "/queue" if name is None else "/limits"
    if fields.get("end"):
        return Done(f"Resumed {what}." if queue.resume(name=name) else f"{what} was not paused.", page)
    made = queue.pause(fields.get("duration") or None, name=name, reason=fields.get("reason", ""))
    end = "until it is resumed" if made.until is None else f"until {exact_in(fields.zone, made.until)}"
    return Done(f"Paused {what} {end}.", page)


def _cancel(queue: DelayQueue[Any], fields: Fields) -> Done:
    outcome = queue.cancel(fields["id"], running=bool(fields.get("running")))
    return Done(f"{fields['id']}: {outcome_text(outcome)}.", "/message", "id")


def _reschedule(queue: DelayQueue[Any], fields: Fields) -> Done:
    delay, at = fields.get("delay") or None, time_in(fields.get("at", ""), "at", fields.zone)
    if (delay is None) == (at is None):
        ways = " or ".join(f'"{field.label_in(fields.zone)}"' for field in FIELDS["reschedule"].values())
        raise ConfigurationError(f"give either {ways}")
    outcome = queue.reschedule(fields["id"], delay, at=at)
    return Done(f"{fields['id']}: {outcome_text(outcome)}.", "/message", "id")


def _edit(queue: DelayQueue[Any], fields: Fields) -> Done:
    return Done(f"{fields['id']}: {outcome_text(edit_by_form(queue, fields))}.", "/message", "id")


def _kill(queue: DelayQueue[Any], fields: Fields) -> Done:
    return Done(f"{fields['id']}: {outcome_text(queue.kill(fields['id']))}.", "/message", "id")


def _redrive(queue: DelayQueue[Any], fields: Fields) -> Done:
    rate: dict[str, Any] = {"rate": fields["rate"]} if fields.get("rate") else {}
    if fields.get("entry"):
        done = queue.dead.redrive(fields["entry"], **rate)
    elif fields.get("group"):
        done = queue.dead.redrive(group=fields["group"], **rate)
    else:
        done = queue.dead.redrive(all=fields.get("all") == "yes", **rate)
    kept = f" {done.exists:,} stay, as messages with their ids are there." if done.exists else ""
    return Done(f"Sent {pluralize(done.redriven, 'message')} again.{kept}", "/dead", entry=fields.get("entry", ""))


def _messages(queue: DelayQueue[Any], fields: Fields) -> Done:
    done = act_on_messages(queue, fields.get("what", ""), fields.chosen, fields.get("delay") or None)
    return Done(done.note, "/messages", outcomes=done.outcomes)


def _dead(queue: DelayQueue[Any], fields: Fields) -> Done:
    done = act_on_dead(queue, fields.get("what", ""), fields.chosen)
    return Done(done.note, "/dead", outcomes=done.outcomes)


def _limit(queue: DelayQueue[Any], fields: Fields) -> Done:
    name = fields.get("name") or None
    what = queue.name if name is None else f"{name} of {queue.name}"
    if fields.get("remove"):
        removed = queue.limits.remove(name)
        return Done(f"Removed the limit of {what}." if removed else f"{what} has no limit.", "/limits")
    numbers = {key: _number(key, fields[key]) for key in ("burst", "running") if fields.get(key)}
    rate, in_order = fields.get("rate_limit") or None, bool(fields.get("in_order"))
    if rate is None and "running" not in numbers and not in_order:
        ways = " or ".join(f'"{FIELDS["limit"][key].label}"' for key in ("rate_limit", "running"))
        raise ConfigurationError(f"give {ways}, or both")
    burst, running = numbers.get("burst"), numbers.get("running")
    queue.limits.set(name, rate_limit=rate, burst=burst, running=running, in_order=in_order)
    return Done(f"Limited {what}.", "/limits")


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:  # noqa: PLR2004 - a number of any use
        raise ConfigurationError(f"{name} must be a number, not {text!r:.60}")
    return int(text)


def _schedule(queue: DelayQueue[Any], fields: Fields) -> Done:
    name, what = fields["name"], fields.get("what", "")
    try:
        if what == "pause":
            queue.schedules.pause(name, until=fields.get("duration") or None)
            return Done(f"Paused the schedule {name}.", "/schedules")
        if what == "resume":
            queue.schedules.resume(name)
            return Done(f"Resumed the schedule {name}.", "/schedules")
        if what == "run":
            return Done(f"Sent {queue.schedules.run_now(name).id}.", "/schedules")
    except UnknownScheduleError:
        raise HTTPException(404, "There is no such schedule.") from None
    raise HTTPException(400, "A schedule can be paused, resumed or run.")


ACTIONS: dict[str, Callable[[DelayQueue[Any], Fields], Done]] = {
    "pause": _pause,
    "cancel": _cancel,
    "kill": _kill,
    "edit": _edit,
    "reschedule": _reschedule,
    "redrive": _redrive,
    "messages": _messages,
    "dead": _dead,
    "limit": _limit,
    "schedule": _schedule,
}
_PAGES: dict[str, Callable[[Request], Response | Awaitable[Response]]] = {
    "pause": show_queue,
    "reschedule": show_message,
    "edit": show_message,
    "redrive": show_dead,
    "messages": show_messages,
    "dead": show_dead,
    "limit": show_limits,
    "schedule": show_schedules,
}
"""The pages with forms that somebody fills in."""


async def act(request: Request) -> Response:
    """Check who sends a form and from where, do what it says, and return to the page."""
    site = site_of(request)
    form = await request.form(max_files=0, max_fields=MAX_FIELDS)
    fields = Fields((name, value) for name, value in form.items() if isinstance(value, str))
    fields.zone = zone_of(request)
    if fields.pop("chosen", None) is not None:
        fields.chosen = tuple(one for one in form.getlist("chosen") if isinstance(one, str))
    token = fields.pop("form_token", None)
    request.state.page_query = fields.pop("page_query", "")
    return await run_in_threadpool(_checked, request, site, fields, token)


def _checked(request: Request, site: Site, fields: Fields, token: str | None) -> Response:
    action, viewer = request.path_params["action"], request.state.viewer
    run = ACTIONS.get(action)
    if run is None:
        raise HTTPException(404, "There is no such action.")
    site.check_form(request, token)
    if not site.may_write(viewer):
        _log(request, viewer, action, fields, "refused: read-only")
        raise HTTPException(403, "This dashboard is read-only for you.")
    queue = site.queue(request, fields.get("queue", ""))
    try:
        done = run(queue, fields)
    except KeyError as error:
        raise HTTPException(400, f"The form lacks {error}.") from None
    except (DelayqError, HTTPException) as error:
        text = error.detail if isinstance(error, HTTPException) else str(error)
        _log(request, viewer, action, fields, f"failed: {text}")
        again = _page_again(request, action, fields, error) if isinstance(error, ConfigurationError) else None
        if again is None:
            raise
        return again
    site.live.forget()
    _log(request, viewer, action, fields, done.note)
    _record(site, viewer, action, fields, done)
    about = {done.about: fields[done.about]} if done.about else {}
    if done.outcomes:
        about = dict(parse_qsl(request.state.page_query))
    return site.done(request, f"{done.page}{query(**{**about, 'queue': queue.name})}", done.note)


def _page_again(request: Request, action: str, fields: Fields, error: Exception) -> Response | None:
    """Return the page of a form, with its filter, what was sent and what is wrong; None if the form is gone from it.

    The queue is that of the form, which has been checked.
    """
    show = show_limits if action == "pause" and fields.get("name") else _PAGES.get(action)
    if show is None:
        return None
    refused = RefusedForm(action, fields, str(error), fields.zone)
    request.state.refused = refused
    about = {"queue": fields["queue"], "id": fields.get("id"), "grouped": "yes" if fields.get("group") else None}
    shown = {**dict(parse_qsl(request.state.page_query)), **{name: one for name, one in about.items() if one}}
    scope = {**request.scope, "method": "GET", "query_string": query(**shown)[1:].encode()}
    try:
        again = Request(scope)
        page: Any = from_thread.run(partial(show, again)) if iscoroutinefunction(show) else show(again)
    except (DelayqError, HTTPException):
        return None
    finally:
        request.state.refused = None
    return page if refused.is_shown else None


def _log(request: Request, viewer: Viewer, action: str, fields: Fields, outcome: str) -> None:
    """Log who has tried what with which outcome."""
    client = request.client.host if request.client else ""
    given = _told(fields)
    outcome = clean(outcome)
    what = _as_text(given)
    extra = {"viewer": viewer.name, "action": action, "client": client, "fields": given, "outcome": outcome}
    log.info("%s: %s %s: %s", viewer.name, action, what, outcome, extra={**extra, "queue": given.get("queue", "")})


def _told(fields: Fields) -> dict[str, str]:
    """Return what a form had, as it is logged: of what was chosen, all."""
    told = {
        truncate(clean(name), MAX_NAME): truncate(clean(value), MAX_LOGGED)
        for name, value in fields.items()
        if value and name not in _UNTOLD
    }
    chosen = clean(",".join(fields.chosen[:MAX_CHOSEN]))
    return {**told, "chosen": truncate(chosen, MAX_CHOSEN * MAX_LOGGED)} if chosen else told


def _as_text(given: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in given.items())


def _record(site: Site, viewer: Viewer, action: str, fields: Fields, done: Done) -> None:
    """Record in the event log of the queue, if it is on, who has done what; a failure takes nothing back."""
    queue = fields["queue"]
    what = _as_text({name: value for name, value in _told(fields).items() if name not in ("queue", done.about)})
    text = clean(f"{action} {what}".strip() + f": {done.note}")
    id = fields[done.about] if done.about else done.entry.rpartition(":")[0]
    texts = [(id, text)]
    if done.outcomes:  # in the story of each message
        ids = {one: one.rpartition(":")[0] if action == "dead" else one for one in done.outcomes}
        texts = [(ids[one], f"{fields.get('what', '')}: {outcome}") for one, outcome in done.outcomes.items()]
    calls = site.source.calls_at(queue, texts[0][0])
    try:
        site.source.executor.perform(together([log_action_call(calls, viewer.name, text, id) for id, text in texts]))
    except DelayqError as error:
        log.warning("%s: %s is not in the event log of %s: %s", viewer.name, action, queue, error)

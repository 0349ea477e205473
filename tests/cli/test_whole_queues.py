"""Every command that takes a queue sees all partitions of it, or refuses by name: none sees an empty queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import click
import pytest
from sqlalchemy import create_engine

from delayq import DelayQueue, NewMessage, Schedule, outbox
from delayq.cli import main
from delayq.cli.app import Root
from delayq.cli.support.options import QUEUE

IDS = [f"m{number}" for number in range(12)]
"""Messages that wait, some in each partition."""
DEAD = [f"d{number}" for number in range(8)]
NIGHTLY = [f"nightly-{number}" for number in range(6)]
DUE = [f"u{number}" for number in range(8)]
REFUSED = "queue reminders has 4 partitions, reminders#0 … reminders#3: "
FEASTS = """\
BEGIN:VCALENDAR
BEGIN:VEVENT
UID:feast
SUMMARY:Feast
DTSTART:{:%Y%m%dT%H%M%S}Z
END:VEVENT
END:VCALENDAR
"""
ELSEWHERE = {"top", "web", "spark load", "spark report", "spark audit", "report"}
"""Commands that run until they are stopped, or start Spark: their own tests run them."""


class Says(NamedTuple):
    """A command line without its name, and texts that it prints, on stdout or stderr."""

    arguments: list[str]
    told: list[str]
    code: int


def says(arguments: str, *told: str, code: int = 0) -> Says:
    return Says(arguments.split(), [*told], code)


ALL = " ".join(IDS)
COMMAND_LINES = {
    "send": says("reminders 1 --id=new --delay=1h", "new"),
    "worker": says("--queue=reminders --deliver=log --burst", *DUE),
    "relay": says("reminders out --burst", REFUSED, code=2),
    "outbox relay": says("sqlite:///rows.db reminders --burst", "relayed 1 row"),
    "remind forget": says("feasts --queue=reminders --yes", "cancelled 1 reminder"),
    "remind import": says("feasts.ics --queue=reminders --before=2d", "1 cancelled"),
    "remind list": says("--queue=reminders", "feasts"),
    "remind plan": says("feasts.ics --queue=reminders --before=2d", "1 to be cancelled"),
    "remind replan": says("feasts --queue=reminders", "feasts"),
    "stats": says("reminders --json", '"pending":13', '"dead":8'),
    "workers": says("reminders", "no worker of reminders has reported"),
    "history": says("reminders --json", '"queue":"reminders"'),
    "metrics": says("reminders --once", 'delayq_messages{queue="reminders",state="pending"} 13.0'),
    "notify": says("reminders --deliver=log --once", "begins here"),
    "health": says("reminders --json --max-dead=7", '"dead":8', code=4),
    "forecast": says("reminders --json", '"overdue":8'),
    "list": says("reminders", *IDS, *DUE),
    "search": says("reminders needle", *IDS),
    "show": says("reminders m7", "m7", "needle"),
    "why": says("reminders m7", "it is due at"),
    "result": says("reminders kept", "fine"),
    "events": says("reminders", *IDS, *DEAD),
    "runs end": says("reminders load-1", "load-1"),
    "runs forget": says("reminders load-1", "load-1"),
    "runs list": says("reminders --json", "load-1", '"new":12'),
    "cancel": says(f"reminders {ALL}", *(f"{id}  cancelled" for id in IDS)),
    "kill": says(f"reminders {ALL}", *(f"{id}  killed" for id in IDS)),
    "reschedule": says("reminders m7 --delay=2h", "m7  rescheduled"),
    "edit": says("reminders m7 2", "m7"),
    "run-now": says(f"reminders {ALL}", "m11"),
    "dead groups": says("reminders", "8"),
    "dead list": says("reminders", *DEAD),
    "dead purge": says("reminders --all --yes", "8"),
    "dead redrive": says("reminders --all --yes", "8"),
    "schedules add": says("reminders new --every=1d", "new"),
    "schedules backfill": says("reminders nightly-3 --from=2020-01-01 --until=2020-01-03", "2"),
    "schedules history": says("reminders nightly-3", "the log begins at"),
    "schedules list": says("reminders", *NIGHTLY),
    "schedules move": says("reminders nightly-3 {next} --to={later}", "moved"),
    "schedules next": says("reminders nightly-3", "20"),
    "schedules pause": says("reminders nightly-3", "nightly-3"),
    "schedules remove": says("reminders nightly-3", "nightly-3"),
    "schedules replan": says("reminders --json", '"moved"'),
    "schedules restore": says("reminders nightly-3 {next}", "unchanged"),
    "schedules resume": says("reminders nightly-3", "nightly-3"),
    "schedules run": says("reminders nightly-3", "nightly-3"),
    "schedules set": says("reminders nightly-3 --retries=2", "nightly-3"),
    "schedules show": says("reminders nightly-3", "nightly-3"),
    "schedules skip": says("reminders nightly-3 {next}", "skipped"),
    "schedules sync": says("reminders schedules.toml", "new"),
    "pause": says("reminders", "reminders  paused"),
    "resume": says("reminders", "was not paused"),
    "limits list": says("reminders", "5000/s"),
    "limits remove": says("reminders", "removed"),
    "limits set": says("reminders --running=4", "4"),
    "forget": says("reminders --id-prefix=d --yes", "8"),
    "purge": says("reminders --yes", "deleted 21 messages"),
    "remove": says("reminders --yes", "is not removed", code=1),
    "acl": says("producer --queue=reminders", "reminders"),
    "doctor": says("reminders --json", "append-only file", code=4),
    "partitions": says("reminders", "reminders#3"),
    "load": says("table.csv reminders", "1 new"),
    "export": says("reminders", *IDS, *DEAD),
    "import": says("reminders table.jsonl", "1"),
    "migrate": says("jobs --from=rq --to=reminders", "jobs", code=3),
    "cold": says("reminders cold", "has partitions: it cannot have a cold tier", code=2),
    "archive": says("reminders archive", REFUSED, code=2),
    "audit": says("plan archive reminders", REFUSED, code=2),
}


def commands(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands with their names, those of groups one by one."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from commands(found, *path, name)
    else:
        yield " ".join(path), command


def takes_queue(command: click.Command) -> bool:
    """Return whether a command takes the name of a queue: by its type, or, where it may be more, by its own."""
    return any(one.type is QUEUE or one.name in ("queue", "names", "queues") for one in command.params)


def test_every_command_that_takes_a_queue_is_in_the_table():
    named = {name for name, command in commands(root()) if takes_queue(command)}
    assert named == {*COMMAND_LINES, *ELSEWHERE}


def root() -> Root:
    """Return the group of all commands."""
    assert isinstance(main, Root)
    return main


@pytest.fixture
def next_time(redis_url, tmp_path, cli):
    """A queue over four partitions that has some of everything, and files to read; returns when `nightly-3` occurs."""
    due = datetime.now(UTC) + timedelta(days=9)
    (tmp_path / "feasts.ics").write_text(FEASTS.format(due))
    (tmp_path / "schedules.toml").write_text('[schedules.new]\nevery = "1d"\n')
    (tmp_path / "table.csv").write_text(f"id,due,payload\nloaded,{due.isoformat()},1\n")
    row = {"id": "loaded", "state": "pending", "due": due.isoformat(), "retries": 3, "attempts": 0, "payload": 1}
    (tmp_path / "table.jsonl").write_text(json.dumps(row | {"encoding": "json"}) + "\n")
    engine = create_engine(f"sqlite:///{tmp_path}/rows.db")
    outbox.create(engine)
    with DelayQueue("reminders", url=redis_url, partitions=4, events=True) as queue:
        with engine.begin() as connection:
            outbox.send(connection, queue, "x", id="committed", delay=36_000)
        engine.dispose()
        queue.send_many([NewMessage({"of": "needle"}, id=id, delay=36_000) for id in IDS], run="load-1")
        queue.end_run("load-1")
        queue.send_many([NewMessage("x", id=id) for id in DEAD])
        with queue.lease(n=len(DEAD)) as leased:
            for message in leased:
                message.reject("no such user")
        queue.send("x", id="kept", retention=3600)
        with queue.lease() as message:
            message.ack("fine")
        queue.send_many([NewMessage("x", id=id) for id in DUE])
        queue.schedules.add_many([Schedule(name, every=86_400) for name in NIGHTLY])
        queue.limits.set(rate_limit="5000/s")
        at = queue.schedules.get("nightly-3").next
    assert cli("remind", "import", "feasts.ics", "--before=1d").code == 0
    return at


@pytest.mark.parametrize("name", [*COMMAND_LINES])
def test_it_sees_all_partitions_or_refuses_by_name(cli, next_time, name):
    line = COMMAND_LINES[name]
    times = {"next": next_time.isoformat(), "later": (next_time + timedelta(hours=1)).isoformat()}
    done = cli(*name.split(), *[one.format(**times) for one in line.arguments])
    assert done.code == line.code, done.err
    for text in line.told:
        assert text in done.out + done.err

"""`delayq schedules sync`: the schedules of a TOML file."""

from __future__ import annotations

import pytest

from delayq import Schedule

FILE = """
[schedules.digest]
cron = "0 9 * * MON-FRI"
tz = "Europe/Berlin"
payload = {kind = "digest"}
message_name = "send_digest"
retries = 5
labels = ["mail"]
except = ["holidays:DE"]

[schedules.sweep]
every = "15m"
start = 2026-01-01T00:00:00Z
"""


@pytest.fixture
def sync(cli, tmp_path):
    def run(text: str, *options: str):
        path = tmp_path / "billing.toml"
        path.write_text(text)
        return cli("schedules", "sync", "reminders", str(path), *options)

    return run


def test_schedules_become_those_of_the_file(sync, queue):
    ended = sync(FILE)
    assert (ended.code, ended.out) == (0, "digest  new\nsweep  new\n")
    digest = queue.schedules.get("digest")
    assert (digest.cron, digest.tz, digest.retries) == ("0 9 * * MON-FRI", "Europe/Berlin", 5)
    assert (digest.payload, digest.message_name) == ({"kind": "digest"}, "send_digest")
    assert (digest.labels, digest.except_) == (("mail", "sync:billing"), ("holidays:DE",))
    assert sync(FILE.replace("15m", "30m")).out == "digest  unchanged\nsweep  changed\n"


def test_prune_removes_only_what_the_owner_has_no_more(sync, queue):
    queue.schedules.add("other", every="1h")
    queue.schedules.sync([Schedule("theirs", every="1h")], owner="shop")
    sync(FILE)
    sweep = FILE[FILE.index("[schedules.sweep]") :]
    assert sync(sweep).out == "sweep  unchanged\n"
    assert sync(sweep, "--prune", "--dry-run").out == "sweep  unchanged\ndigest  removed\n"
    assert len(queue.schedules.list()) == 4
    found = sync(sweep, "--prune", "--json").json
    assert found == {"schedules": {"sweep": "unchanged"}, "removed": ["digest"], "dry_run": False}
    assert [one.name for one in queue.schedules.list()] == ["other", "sweep", "theirs"]
    assert sync("", "--prune", "--owner", "shop").out == "theirs  removed\n"


def test_dry_run_changes_nothing(sync, queue):
    ended = sync(FILE, "--dry-run")
    assert (ended.out, ended.err) == ("digest  new\nsweep  new\n", "nothing was changed\n")
    assert queue.schedules.list() == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[schedules.a]\nevery = ", "cannot read the schedules in"),
        ("[schedule.a]\nevery = '1h'", "unknown table 'schedule', did you mean 'schedules'?"),
        ("schedules = 5", "schedules must be tables"),
        ("[schedules]\na = 5", "schedule a must be a table"),
        (FILE + "crn = '1'", "schedule sweep: unknown option 'crn', did you mean 'cron'?"),
        (FILE + "cron = '* * * * *'", "schedule sweep: give cron, every or rrule: one of them"),
        (FILE + "[schedules.'a b']\nevery='1h'", "schedule name must be"),
        (
            FILE + "[schedules.late]\nevery='1h'\nstart=2026-01-01T00:00:00",
            "schedule late: start must carry a time zone",
        ),
        (FILE + "[schedules.c]\ncron='61 * * * *'", "schedule c: cron"),
        (FILE + "labels = 'mail'", "schedule sweep: labels must be a list of texts"),
        (FILE + "headers = {a = 1}", "schedule sweep: headers must map str to str"),
    ],
)
def test_wrong_file_is_one_line_and_changes_nothing(sync, queue, text, error):
    ended = sync(text)
    assert ended.code == 2
    assert error in ended.line
    assert queue.schedules.list() == []


def test_wrong_owner_is_one_line(sync):
    assert "owner must be 1 to 64" in sync(FILE, "--owner", "a b").line

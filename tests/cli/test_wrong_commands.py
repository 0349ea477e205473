"""What somebody types who is new, or comes from another queue: each answer says what is wrong, and what to write."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

APP = """\
from delayq import DelayQueue

queue = DelayQueue("reminders")
silent = DelayQueue("silent")
number = 5


@queue.callback
def remind(message): ...
"""
FILES = {
    "app.py": APP,
    "users.jsonl": "1\n2\n",
    "broken.jsonl": "1\n{broken\n",
    "bad.toml": "[daily\n",
    "typo.toml": '[daily]\ncron = "0 9 * * *"\n',
    "users.txt": "x\n",
}
COMMANDS: list[tuple[str, int, str]] = [
    ("apply-async reminders 1", 2, "no command 'apply-async': here it is send"),
    ("revok reminders later", 2, "no command 'revok'"),
    ("jobs reminders", 2, "no command 'jobs': here it is list"),
    ("info", 2, "no command 'info': here it is stats"),
    ("requeue reminders dead1", 2, "no command 'requeue': here it is dead redrive"),
    ("migrat reminders", 2, "no command 'migrat', did you mean 'migrate'?"),
    ("sned reminders 1", 2, "no command 'sned', did you mean 'send'?"),
    ("shedules list reminders", 2, "no command 'shedules', did you mean 'schedules'?"),
    ("schedules create reminders daily --cron '0 9 * * *'", 2, "no command 'create': here it is add"),
    ("schedules delete reminders daily", 2, "no command 'delete': here it is remove"),
    ("dead retry reminders --all", 2, "no command 'retry': here it is redrive"),
    ("dead requeue reminders --all", 2, "no command 'requeue': here it is redrive"),
    ("limits add reminders --rate 5/s", 2, "no command 'add': here it is set"),
    ("limit set reminders --rate 5/s", 2, "no command 'limit', did you mean 'limits'?"),
    ("runs show reminders r1", 2, "Got unexpected extra argument (r1). The arguments are QUEUE [RUN]; quote one that"),
    ("remind ics team.ics", 2, "no command 'ics': here it is import"),
    ("spark run reminders", 2, "no command 'run': the commands are audit, demo, lapse, load, plan, report"),
    ("send", 2, "Missing argument 'QUEUE'"),
    ("send reminders", 2, "give either PAYLOAD or --file"),
    ("send reminders 1 2", 2, "Got unexpected extra argument (2). The arguments are QUEUE [PAYLOAD]; quote one that"),
    ("send reminders 1 --delay", 2, "Option '--delay' requires an argument."),
    ("send reminders '{user: 42}'", 2, "PAYLOAD is not JSON (JSON is malformed: object keys must be strings (byte"),
    ("send 'my queue' 1", 2, "queue name must be 1 to 128 of A-Z a-z 0-9 . _ -, not 'my queue'"),
    ("send reminders 1 --delay 5 minutes", 2, "Got unexpected extra argument (minutes). The arguments are QUEUE"),
    ("send reminders 1 --delay 5min", 2, "--delay must look like '1h30m', '45s' or '7d' (units: w d h m s ms), not"),
    ("send reminders 1 --delay 1h --at +2h", 2, "give either --delay or --at, not both"),
    ("send reminders 1 --at tomorrow", 2, "--at must look like 2027-01-31T09:00, now, +2h or -1d, not 'tomorrow'"),
    ("send reminders 1 --at 2027-02-30T09:00", 2, "'2027-02-30T09:00': day is out of range for month"),
    ("send reminders 1 --eta +5m", 2, "No such option '--eta': here it is --at"),
    ("send reminders 1 --expires-in 5m", 2, "No such option '--expires-in', did you mean '--expires'?"),
    ("send reminders 1 --retries many", 2, "Invalid value for '--retries': 'many' is not a valid integer"),
    ("send reminders 1 --priority 500", 2, "priority must be a whole number from -100 to 100, not 500"),
    ("send reminders 1 --id 'a b'", 2, "id must be 1 to 128 of A-Z a-z 0-9 . _ : @ / + = -, not 'a b'"),
    ("send reminders 1 --header trace", 2, "Invalid value for '--header': 'trace' without a value is not NAME=VALUE"),
    ("send reminders --file missing.jsonl", 2, "Invalid value for '--file': 'missing.jsonl': No such file or"),
    ("send reminders 1 --file users.jsonl", 2, "give either PAYLOAD or --file"),
    ("send reminders --file broken.jsonl", 2, "line 2 is not JSON (JSON is malformed: object keys must be strings"),
    ("send reminders 1 --replace", 2, "--replace needs the --id of the message to replace"),
    ("send reminders 1 --collect 5s", 2, "Invalid value for '--collect': '5s' is not a valid integer"),
    ("send reminders 1 --group a", 2, "--group goes with --debounce and --collect"),
    ("send reminders 1 --hours 9-17", 2, "hours must look like '08:00-21:00', 'MON-FRI 09:00-12:00,13:00-17:00; SAT"),
    ("send reminders 1 --hours 08:00-21:00 --tz Berlin", 2, "did you mean 'Europe/Berlin'?"),
    ("send reminders 1 --tz Europe/Berlin", 2, "--tz goes with --hours; for the times of a command, give it first:"),
    ("send reminders 1 --key 'a b'", 2, "key must be 1 to 128 of A-Z a-z 0-9 . _ : @ / + = -, not 'a b'"),
    ("send reminders 1 --unique --id a", 2, "give id or unique, but not both: unique makes the id"),
    ("send reminders 1 --debounce 5s", 2, "--debounce needs an --id, or --unique"),
    ("send reminders 1 --codec pickle", 2, "Invalid value for '--codec': 'pickle' is not one of 'json', 'text',"),
    ("send reminders 1 --engine kafka", 2, "Invalid value for '--engine': 'kafka' is not one of 'delay', 'streams',"),
    ("send reminders 1 --engine workqueue --delay 5m", 2, "the workqueue engine has no delays"),
    ("worker", 2, "give MODULE or MODULE:QUEUE, or --queue and --deliver"),
    ("worker app", 2, "app:silent: queue silent has no callback: register one with @queue.callback; or name the"),
    ("worker app.py", 2, "app.py is a file: name the module, as in app"),
    ("worker missing:queue", 2, "no module 'missing'"),
    ("worker app:qeue", 2, "app has no 'qeue', did you mean 'queue'?"),
    ("worker app:number", 2, "app:number is not a DelayQueue, but of type int"),
    ("worker app:queue --concurrency 0", 2, "Invalid value for '-c' / '--concurrency': 0 is not in the range"),
    ("worker app:queue --autoscale 10,3", 2, "No such option '--autoscale': here it is --concurrency"),
    ("worker app:queue --pool gevent", 2, "No such option '--pool': here it is --concurrency"),
    ("worker app:queue --loglevel info", 2, "No such option '--loglevel', did you mean '--log-level'?"),
    ("worker app:queue --log-level verbose", 2, "Invalid value for '--log-level': 'verbose' is not one of 'debug',"),
    ("worker app:queue --max-memory lots", 2, "--max-memory must be a size above 0, such as 500M or 2G, not 'lots'"),
    ("worker app:queue --limit app:other=5", 2, "app has no 'other'; it has queue, silent"),
    ("worker app:queue=fast", 2, "app:queue=fast: the weight must be a whole number from 1, as in app:queue=5"),
    ("worker --queue reminders", 2, "--queue needs --deliver"),
    ("worker --queue reminders --deliver webhook", 2, "--deliver webhook needs --webhook-url"),
    ("worker app:queue --reload --processes 2", 2, "--reload is for development: it goes with one process, without"),
    ("relay reminders", 2, "Missing argument 'STREAM'"),
    ("stats remindres", 3, "no queue named 'remindres', did you mean 'reminders'?"),
    ("stats reminders --memory --watch", 2, "--memory is for delay queues, and does not go with --watch: asking"),
    ("stats reminders --memory --engine streams", 2, "--memory is for delay queues, and does not go with --watch:"),
    ("list reminders --state pendign", 2, "Invalid value for '--state': 'pendign' is not one of 'pending', 'ready',"),
    ("list reminders --limit 5000", 2, "Invalid value for '--limit': 5000 is not in the range 1<=x<=1000"),
    ("list reminders --from +2h --to now", 2, " is after --to "),
    ("list reminders --json --csv", 2, "choose one of --json, --jsonl and --csv"),
    ("list reminders --cursor x", 2, "cursor 'x' is of another list: give the --state that it was printed with"),
    ("show reminders latr", 3, "no message 'latr' in reminders: it was never sent, or is done, cancelled or expired;"),
    ("show later", 2, "Missing argument 'ID'"),
    ("result reminders dead1 --timeout soon", 2, "--timeout must look like '1h30m', '45s' or '7d' (units: w d h m s"),
    ("search reminders x --in body", 2, "Invalid value for '--in': 'body' is not one of 'payload', 'error', 'headers'"),
    ("why reminders nobody", 3, "nobody in reminders: there is no such message: it was never sent, or is done,"),
    ("events reminders --kind exploded", 2, "Invalid value for '--kind': 'exploded' is not one of 'sent',"),
    ("history reminders --days 10 --buckets week", 2, "Invalid value for '--buckets': 'week' is not one of 'hour',"),
    ("forecast reminders --until 2020-01-01T00:00", 2, "until must be in the future, not 2020-01-01"),
    ("forecast reminders --above 5000", 2, "--above must look like '200/s', '5/m' or '3/10s', not '5000'"),
    ("cancel reminders", 2, "select messages: give ids, or --name, --id-prefix, --state, --from or --to; not both"),
    ("cancel reminders later --name mail", 2, "--state, --from or --to; not both"),
    ("kill reminders --state dead --yes", 2, "Invalid value for '--state': 'dead' is not one of 'pending', 'ready',"),
    ("reschedule reminders later", 2, "give either --delay or --at"),
    ("reschedule reminders later 1h", 2, "Got unexpected extra argument (1h). The arguments are QUEUE [ID]; quote"),
    ("edit reminders later 1 --priority 1000", 2, "priority must be a whole number from -100 to 100, not 1000"),
    ("edit reminders later '{broken'", 2, "PAYLOAD is not JSON (JSON is malformed: object keys must be strings (byte"),
    ("edit reminders later --header a=b --no-headers", 2, "give either --header or --no-headers, not both"),
    ("edit reminders later 1 --delay 5m", 2, "the options are --codec, --text, --header, --no-headers"),
    ("edit reminders", 2, "Missing argument 'ID'"),
    ("forget reminders", 2, "select messages: give ids, or --id-prefix, or --name; one of them"),
    ("forget reminders later", 2, "cannot ask for confirmation without a terminal: give --yes, or --dry-run to count"),
    ("forget reminders dead1 --name mail --yes", 2, "or --id-prefix, or --name; one of them"),
    ("forget nowhere dead1 --yes", 3, "no queue named 'nowhere'"),
    ("tour now", 2, "Got unexpected extra argument (now). It takes none"),
    ("tour --nowait", 2, "No such option '--nowait', did you mean '--no-wait'?"),
    ("dead redrive reminders", 2, "select dead messages: give ids, or --reason, --error or --group to match, or"),
    ("dead redrive reminders --all --rate 50 --yes", 2, "rate must look like '200/s', '5/m' or '3/10s', not '50'"),
    ("dead list reminders --engine workqueue", 2, "the workqueue engine has no dead letter"),
    ("schedules add reminders daily", 2, "schedule daily: give cron, every or rrule: one of them"),
    ("schedules add reminders daily --cron '0 25 * * *'", 2, "bad hour: 0 to 23"),
    ("schedules add reminders daily --cron '0 9 * *'", 2, "give five, minute hour day month weekday"),
    ("schedules add reminders daily --cron '0 9 * * *' --tz Mars", 2, "give a name such as 'Europe/Berlin'"),
    ("schedules show reminders daly", 3, "no schedule named 'daly', did you mean 'daily'?"),
    ("schedules skip reminders daily 2099-01-01T08:00", 3, "daily has no occurrence at 2099-01-01T08:00:00+00:00;"),
    ("schedules sync reminders", 2, "Missing argument 'FILE'"),
    ("schedules sync reminders missing.toml", 2, "Invalid value for 'FILE': File 'missing.toml' does not exist"),
    ("schedules sync reminders bad.toml", 2, "cannot read the schedules in bad.toml: Expected ']' at the end of a"),
    ("schedules sync reminders typo.toml", 2, "typo.toml: unknown table 'daily'; write a schedule as a table"),
    ("pause reminders --until yesterday", 2, "--until must look like 2h or 2027-01-31T09:00, not 'yesterday'"),
    ("pause reminders --for 2h", 2, "No such option '--for': the options are --name, --until, --reason, --json"),
    ("limits set reminders", 2, "say what to limit: --rate 200/s, --running 5, or both"),
    ("limits set reminders --rate 5/week", 2, "rate_limit must be per s, m, h or d, or per a duration such as '10s',"),
    ("purge reminders", 2, "cannot ask for confirmation without a terminal: give --yes, or --dry-run to count first"),
    ("remove reminders --yes", 1, "reminders is not removed, it has 1 message (purge it), 1 dead message (purge its"),
    ("acl boss", 2, "Invalid value for 'ROLE...': 'boss' is not one of 'producer', 'consumer', 'inspector', 'admin',"),
    ("rekey reminders", 2, "no module 'reminders'"),
    ("load missing.csv reminders", 2, "there is no file or folder 'missing.csv'"),
    ("load users.txt reminders", 2, "'users.txt' ends with .txt, not with one of .csv, .jsonl, .ndjson, .json,"),
    ("docs lifecycle", 3, "no topic named 'lifecycle'; the topics are tutorial, first-day, fastapi, django, testing,"),
    ("torture run --faults earthquake", 2, "unknown fault 'earthquake'; use one of kill, stop, term, replies, cut,"),
    ("--url localhost:6379 stats reminders", 2, "url must begin with redis://, rediss://, unix:// or memory://, or"),
    ("--url redis://localhost:port/0 stats reminders", 2, "url is malformed: check its ports and options, and"),
    (
        "--timeout 100ms --url redis://127.0.0.1:1/0 stats reminders",
        69,
        "Redis cannot be reached at 127.0.0.1:1 (from the",
    ),
    ("--timeout 0 stats reminders", 2, "--timeout must be between 100ms and 100 years, not 0"),
    ("--tz Berlin list reminders", 2, "--tz must be a time zone such as Europe/Berlin, not 'Berlin'"),
    ("--config none.toml stats reminders", 2, "there is no file 'none.toml'"),
    ("stats reminders --url redis://localhost", 2, "--url goes before the command: delayq --url … stats"),
    ("-v stats reminders", 2, "the options are --config, --url, --prefix, --timeout, --tz"),
    ("web --write --host 0.0.0.0", 2, "others could reach the dashboard: give a token in DELAYQ_WEB_TOKEN, --viewers"),
    ("metrics --port 99999", 2, "Invalid value for '--port': 99999 is not in the range 0<=x<=65535"),
    ("notify reminders", 2, "Missing option '--deliver'. Choose from: webhook, smtp, log"),
    ("remind import missing.ics", 2, "Invalid value for 'FILE...': File 'missing.ics' does not exist"),
    ("plan missing.csv out.csv", 2, "Missing option '--rules'"),
    ("top reminders --every 1ms", 2, "top needs a terminal: without one, use delayq stats QUEUE --watch"),
    ("queues reminders", 2, "Got unexpected extra argument (reminders). It takes none"),
    ("enqeue reminders 1", 2, "no command 'enqeue': here it is send"),
]
"""A command line, its exit code, and what its one line on stderr says."""


@pytest.fixture
def life(queue, tmp_path, monkeypatch):
    """A queue with a message that waits, a dead one and a schedule, beside some files."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in FILES.items():
        Path(name).write_text(text)
    queue.send(1, id="dead1", name="mail")
    with queue.lease() as message:
        message.reject("no")
    queue.send({"user": 42}, "1h", id="later")
    queue.schedules.add("daily", cron="0 9 * * *", payload=1)
    return queue


@pytest.mark.table(("line", "code", "says"), COMMANDS, ids=str)
def test_a_wrong_command_line_is_told_what_to_write(cli, life, line, code, says):
    ended = cli(*shlex.split(line))
    assert ended.code == code
    assert says in ended.line
    assert life.counts().living == 1

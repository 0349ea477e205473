"""Rules: valid values, their meaning, and errors for invalid ones."""

from datetime import time, timedelta

import pytest

from delayq.bulk.reminder_rules import Rule, Span, check_rules, read_rules
from delayq.errors import ConfigurationError

HOUR = 3_600_000


@pytest.mark.table(
    ("offset", "span"),
    [
        ("-2h", (0, -2 * HOUR)),
        ("+30m", (0, HOUR // 2)),
        ("30m", (0, HOUR // 2)),
        (0, (0, 0)),
        (-90, (0, -90_000)),
        (-1.5, (0, -1500)),
        ("-1d", (-1, 0)),
        ("-24h", (0, -24 * HOUR)),
        ("-2w", (-14, 0)),
        ("-1w1d2h", (-8, -2 * HOUR)),
        ("-1d500ms", (-1, -500)),
        (timedelta(hours=-2), (0, -2 * HOUR)),
        (timedelta(days=-1), (-1, 0)),
        (timedelta(hours=36), (0, 36 * HOUR)),
    ],
)
def test_days_are_calendar_days_and_hours_are_elapsed_time(offset, span):
    assert Rule("r", offset=offset).shift == Span(*span)


@pytest.mark.parametrize("at", ["09:30", "09:30:00", time(9, 30)])
def test_local_time_is_read_from_text_or_time(at):
    assert Rule("r", at=at).clock == 9 * HOUR + HOUR // 2


def test_missing_local_time_is_not_midnight():
    assert Rule("r").clock is None
    assert Rule("r", at="00:00").clock == 0


@pytest.mark.parametrize(
    ("weekdays", "back"),
    [
        (None, (0, 0, 0, 0, 0, 0, 0)),
        ("mon-sun", (0, 0, 0, 0, 0, 0, 0)),
        ("mon-fri", (0, 0, 0, 0, 0, 1, 2)),
        ("Mon - Fri", (0, 0, 0, 0, 0, 1, 2)),
        ("wed", (5, 6, 0, 1, 2, 3, 4)),
        ("sat,sun", (1, 2, 3, 4, 5, 0, 0)),
        ("fri-mon", (0, 1, 2, 3, 0, 0, 0)),
        (["tue", "thu"], (4, 0, 1, 0, 1, 2, 3)),
    ],
)
def test_days_back_from_each_weekday_to_an_allowed_one(weekdays, back):
    assert Rule("r", weekdays=weekdays).back == back


def test_steps_between_reminders():
    assert Rule("r").step == (0, 0)
    assert Rule("r", repeats=3, every="1d").step == (1, 0)
    assert Rule("r", repeats=3, every="90m").step == (0, 3 * HOUR // 2)


@pytest.mark.table(
    ("options", "message"),
    [
        (
            {"offset": "2 hours"},
            "rule 'r': offset must look like '1h30m', '45s' or '7d' (units: w d h m s ms), not '2 hours'",
        ),
        ({"offset": "--2h"}, "rule 'r': offset must look like"),
        ({"offset": "-1.5d"}, "rule 'r': offset must have whole days"),
        (
            {"offset": None},
            "rule 'r': offset must be a timedelta, a number of seconds or a text like '1h30m', not None",
        ),
        ({"offset": True}, "rule 'r': offset must be a timedelta"),
        ({"offset": float("nan")}, "rule 'r': offset must be between"),
        ({"offset": "-200w200w9999w"}, "rule 'r': offset must be between"),
        ({"at": "9:00"}, "rule 'r': at must look like '09:00' or '17:30:15', not '9:00'"),
        ({"at": "24:00"}, "rule 'r': at must look like"),
        ({"at": time(9, 0, 0, 5)}, "rule 'r': at must look like"),
        ({"at": 9}, "rule 'r': at must look like '09:00' or '17:30:15', not 9"),
        (
            {"weekdays": "monday"},
            "rule 'r': weekdays must look like 'mon-fri' or 'sat,sun', not 'monday', did you mean",
        ),
        ({"weekdays": "mon-"}, "rule 'r': weekdays must look like"),
        ({"weekdays": ""}, "rule 'r': weekdays must look like"),
        ({"weekdays": []}, "rule 'r': weekdays must look like 'mon-fri' or 'sat,sun', not []"),
        ({"weekdays": 5}, "rule 'r': weekdays must look like"),
        ({"repeats": 0}, "rule 'r': repeats must be a whole number from 1 to 1000, not 0"),
        ({"repeats": 2}, "rule 'r': repeats above 1 needs every"),
        ({"every": "1d"}, "rule 'r': repeats above 1 needs every"),
        ({"repeats": 2, "every": "-1d"}, "rule 'r': every must look like"),
        ({"repeats": 2, "every": 0}, "rule 'r': every must be above 0"),
        ({"payload": "city"}, "rule 'r': payload must list columns, not 'city'"),
        ({"payload": [1]}, "rule 'r': payload must list columns"),
        ({"payload": 1}, "rule 'r': payload must list columns"),
        ({"retries": -1}, "rule 'r': retries must be a whole number"),
    ],
)
def test_invalid_rule_is_refused(options, message):
    with pytest.raises(ConfigurationError) as error:
        Rule("r", **options)
    assert str(error.value).startswith(message)


def test_invalid_name_is_refused():
    with pytest.raises(ConfigurationError, match="rule name must be 1 to 128 of"):
        Rule("two hours")


def test_rules_of_a_plan_need_different_names():
    one = Rule("one")
    assert check_rules(one) == check_rules([one]) == (one,)
    with pytest.raises(ConfigurationError, match="2 rules are named 'one'"):
        check_rules([one, Rule("one", offset="-2h")])
    with pytest.raises(ConfigurationError, match="at least one rule"):
        check_rules([])
    with pytest.raises(ConfigurationError, match="rules must be Rule objects, not 'one'"):
        check_rules(["one"])


def test_rules_are_read_from_a_file(tmp_path):
    file = tmp_path / "rules.toml"
    file.write_text(
        """
[rules.two-hours]
offset = "-2h"
payload = ["carrier", "flight"]

[rules.days]
offset = "-3d"
at = 18:00:00
weekdays = ["mon-thu", "sun"]
repeats = 3
every = "1d"
retries = 0
"""
    )
    assert read_rules(file) == (
        Rule("two-hours", offset="-2h", payload=("carrier", "flight")),
        Rule("days", offset="-3d", at=time(18), weekdays=["mon-thu", "sun"], repeats=3, every="1d", retries=0),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rules.r]\nofset = '-2h'", "rule 'r': unknown key 'ofset', did you mean 'offset'?"),
        ("[rules.r]\nname = 's'", "rule 'r': unknown key 'name'"),
        ("[rules.r]\noffset = 'soon'", "rule 'r': offset must look like"),
        ("[rules.'r s']\n", "rule name must be 1 to 128 of"),
        ("[rule.r]\n", "unknown table 'rule', did you mean 'rules'?"),
        ("[planning]\n", "unknown table 'planning'; write a rule as a table [rules.NAME]"),
        ("[[rules]]\nname = 'r'", "each rule must be a table [rules.NAME]"),
        ("[rules]\nr = '-2h'", "each rule must be a table [rules.NAME]"),
        ("", "a plan needs at least one rule"),
    ],
)
def test_error_in_a_file_names_the_file(tmp_path, text, message):
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        read_rules(file)
    assert str(error.value).startswith(f"{file}: {message}")


@pytest.mark.parametrize("content", [None, b"[rules", b"\xff"])
def test_unreadable_file_is_an_error(tmp_path, content):
    file = tmp_path / "rules.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"cannot read the rules in .*rules\.toml: "):
        read_rules(file)

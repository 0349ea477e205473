"""Delivery to a log: one line per message, whatever it contains."""

import io
import json
import logging

from delayq.delivery import Log
from tests.support.deliveries import delivered


def test_message_is_one_line_on_stdout(capsys):
    log = Log()
    log(delivered(b'{"summary":\n "Zahnarzt"}', codec="bytes", headers={"source": "x\ny"}))
    log(delivered("\x1b[31mred\x9b1m\u2028\u202e", id="m2", codec="text"))
    first, second = capsys.readouterr().out.splitlines()
    assert json.loads(first) == {
        "id": "m1",
        "attempt": 1,
        "due": "2027-01-31T09:00:00.000Z",
        "payload": {"summary": "Zahnarzt"},
        "headers": {"source": "x\ny"},
    }
    assert json.loads(second)["payload"] == "\x1b[31mred\x9b1m\u2028\u202e"
    assert second.isascii()  # no terminal escapes


def test_current_stdout_is_used(monkeypatch):
    log = Log()
    monkeypatch.setattr("sys.stdout", taken := io.StringIO())
    log(delivered(1))
    assert json.loads(taken.getvalue())["payload"] == 1


def test_logger_gets_a_record_with_attributes(caplog):
    caplog.set_level(logging.INFO, "reminders")
    Log(logging.getLogger("reminders"))(delivered({"n": 1}))
    (record,) = caplog.records
    assert (record.levelname, record.id, record.attempt) == ("INFO", "m1", 1)
    assert record.delivered["payload"] == {"n": 1}
    assert record.getMessage().startswith('delivered {"id":"m1"')

"""The log of the package: nothing that fails while it logs reaches who logs."""

import logging
import threading

import pytest

from delayq.safe_log import SafeLog

log = SafeLog("delayq.tests")


class Broken(logging.Handler):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def emit(self, record):
        raise self.error


class Unreadable:
    def __str__(self):
        raise SystemExit("no text")


@pytest.fixture
def break_log(request):
    """Let every message of the package's log raise an error."""

    def install(error):
        handler = Broken(error)
        logging.getLogger("delayq").addHandler(handler)
        request.addfinalizer(lambda: logging.getLogger("delayq").removeHandler(handler))

    return install


def in_thread(act):
    ended = []

    def work():
        act()
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return ended == [True]


@pytest.mark.parametrize("error", [RuntimeError("disk full"), SystemExit("disk full")])
def test_a_message_that_cannot_be_logged_is_printed(break_log, capsys, error):
    break_log(error)
    assert in_thread(lambda: log.warning("%s of %d", "one", 2, extra={"id": "m"}))
    printed = capsys.readouterr().err
    assert "one of 2" in printed
    assert "disk full" in printed


def test_the_exception_that_was_to_be_logged_is_printed_too(break_log, capsys):
    break_log(RuntimeError("disk full"))
    log.error("failed", exc_info=ZeroDivisionError("in the callback"))
    assert "ZeroDivisionError: in the callback" in capsys.readouterr().err


def test_an_argument_without_a_text_harms_nobody(caplog):
    assert in_thread(lambda: log.error("it is %s", Unreadable()))


def test_a_signal_ends_a_program_that_logs(break_log):
    break_log(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        log.warning("in the main thread")


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "exception"])
def test_records_name_the_place_that_logs(caplog, level):
    caplog.set_level(logging.DEBUG, "delayq")
    getattr(log, level)("here")
    log.log(logging.INFO, "there")
    assert {(record.funcName, record.filename) for record in caplog.records} == {
        (test_records_name_the_place_that_logs.__name__, "test_safe_log.py")
    }
    assert caplog.records[0].levelname == {"exception": "ERROR"}.get(level, level.upper())

"""A thread's sleep ends with a signal or with its time, whichever comes first."""

import threading
import time

import pytest

from delayq.worker.drivers.drivers import ThreadSignal
from tests.support.waiting import wait_until


def ends(sleep):
    """Whether a sleep ends; in a thread of its own, since one that does not would never return."""
    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


@pytest.mark.parametrize("seconds", [1e-9, 1e-6, 1e-4])
def test_a_sleep_of_a_moment_ends_after_an_earlier_signal(seconds):
    signal = ThreadSignal()
    for _ in range(100):
        signal.set()
        signal.sleep(0)
        assert ends(lambda: signal.sleep(seconds))


def test_a_signal_ends_a_sleep():
    signal = ThreadSignal()
    thread = threading.Thread(target=signal.sleep, args=[60], daemon=True)
    thread.start()
    signal.set()
    wait_until(lambda: not thread.is_alive())


def test_signals_that_were_sent_before_end_one_sleep():
    signal = ThreadSignal()
    signal.set()
    signal.set()
    began = time.monotonic()
    signal.sleep(60)
    signal.sleep(0.01)
    assert 0.01 <= time.monotonic() - began < 60


def test_threads_that_send_at_the_same_time_do_not_fail():
    signal, failed = ThreadSignal(), []
    ready = threading.Barrier(4)

    def send():
        try:
            ready.wait()
            for _ in range(20_000):
                signal.set()
        except Exception as error:  # noqa: BLE001 - reported below
            failed.append(error)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        signal.sleep(0.001)
    assert not failed


@pytest.mark.parametrize("seconds", [0, -1.0])
def test_no_time_is_no_sleep(seconds):
    assert ends(lambda: ThreadSignal().sleep(seconds))

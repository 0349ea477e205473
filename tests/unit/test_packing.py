"""Packing of commands: an exception that a signal raises meanwhile ends it, and not the process."""

from __future__ import annotations

import subprocess
import sys

from delayq.broker.transport.packing import pack
from tests.support.processes import run

INTERRUPTED = """
import random, signal
from delayq.broker.transport.packing import pack

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
words = ("EVALSHA", *range(8000), *map(float, range(100)))
for _ in range(100):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.002))
        while True:
            pack(words)
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_words_are_packed():
    words = ("SET", b"key", 1, 2.5, "é", memoryview(b"m"))
    assert pack(words) == b"*6\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1\r\n1\r\n$3\r\n2.5\r\n$2\r\n\xc3\xa9\r\n$1\r\nm\r\n"


def test_exception_of_a_signal_handler_ends_it_and_not_the_process():
    ended = run([sys.executable, "-c", INTERRUPTED], stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]

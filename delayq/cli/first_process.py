"""The first process of a container: passes signals on to the worker, and reaps what its programs leave behind.

The kernel gives orphans to the first process, and they stay zombies until that waits for them. A worker must not wait
for processes that it does not know: it would take exit codes from the callbacks that have started them. So the first
process becomes a small init, as `docker run --init` has one, and the worker is its child.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

FIRST = 1
_NOT_PASSED_ON = {signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP, signal.SIGTTIN, signal.SIGTTOU}
_OF_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}


def leave_first_process() -> None:
    """In the first process, go on in a child: this one passes signals on, reaps, and ends with the child's exit code.

    Call it before the first thread starts: a fork has the calling thread alone.
    """
    if os.getpid() == FIRST:
        go_on_in_child()


def go_on_in_child() -> None:
    """Fork, and return in the child alone."""
    passed_on = {*map(int, signal.valid_signals() - _NOT_PASSED_ON - _OF_FAULTS)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, passed_on | {signal.SIGCHLD})
    child = os.fork()
    with suppress(OSError):  # both do it, so that it is done before either goes on
        # Ctrl-C reaches the first process, which passes it on: from the terminal as well, it would count twice.
        os.setpgid(child, child)
    if child:
        os._exit(_watch_over(child, passed_on))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch_over(child: int, passed_on: set[int]) -> int:
    """Pass signals on and reap until the child has ended; return the exit code for it, as shells have it."""
    while True:
        number = signal.sigwait(passed_on | {signal.SIGCHLD})
        if number == signal.SIGCHLD:
            if (status := _reap(child)) is not None:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        else:
            with suppress(ProcessLookupError):
                os.kill(child, number)


def _reap(child: int) -> int | None:
    """Wait for all that has ended; return the status of the child if that is among it."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = ended[1]
    return found

"""What is not about a message: it is not charged, whatever the adapter."""

import errno
import socket
import subprocess
import sys

import pytest

from delayq import DelayQueue, RateLimited, Snooze, StopWorker
from delayq.delivery import Command, Log, Smtp, Webhook, adapter, command
from tests.support.deliveries import delivered
from tests.support.receivers import receiver, status


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


def mailer():
    return Smtp("mail.example.com", sender="a@example.org", to="b@example.org", subject="x", tls="off")


def hook():
    return Webhook("http://hooks.example.com/")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(adapter, "MAX_HELD", 0.01)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOENT, errno.ETXTBSY])
def test_program_that_does_not_start_charges_nothing(monkeypatch, number):
    run = Command(["true"])
    monkeypatch.setattr(subprocess, "Popen", failing(OSError(number, "no")))
    with pytest.raises(Snooze, match="true cannot be started: no"):
        run(delivered({}))


def test_program_that_stays_away_stops_the_worker(monkeypatch):
    run = Command(["true"])
    monkeypatch.setattr(subprocess, "Popen", failing(OSError(errno.ENOENT, "no")))
    monkeypatch.setattr(command, "REPLACED_WITHIN", -1)
    with pytest.raises(StopWorker, match="cannot be started"):
        run(delivered({}))


@pytest.mark.parametrize("made", [mailer, hook])
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "no"), Snooze),
        (socket.gaierror(socket.EAI_NONAME, "no"), StopWorker),
    ],
)
def test_look_up_that_fails(monkeypatch, made, error, outcome):
    deliver = made()
    monkeypatch.setattr(socket, "getaddrinfo", failing(error))
    with pytest.raises(outcome):
        deliver(delivered({}))


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_output_that_cannot_be_written_stops_the_worker(monkeypatch, number):
    monkeypatch.setattr(sys.stdout, "write", failing(OSError(number, "no")))
    with pytest.raises(StopWorker, match="standard output cannot be written: no"):
        Log()(delivered({}))


def test_closed_host_gets_one_request_and_charges_nobody(redis_url):
    with receiver(status(503, Retry_After="30")) as hooks, DelayQueue("q", url=redis_url) as queue:
        post = Webhook(hooks.url)
        post.closes_queue = True
        queue.callback(post)
        queue.send_many(range(10), retries=0)
        queue.run(burst=True)
        post.close()
        assert len(hooks.requests) == 1
        assert (queue.counts().living, queue.counts().dead) == (10, 0)


def test_retry_after_in_the_past_counts_as_none():
    with receiver(status(503, Retry_After="0")) as hooks:
        post = Webhook(hooks.url)
        with pytest.raises(RateLimited) as raised:
            post(delivered({}))
        post.close()
    assert raised.value.delay > 3

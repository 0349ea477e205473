"""A failover loses what no replica has: that happens by default, and not to what `durability="replicated"` let by."""

from urllib.parse import urlsplit

import pytest

from delayq import DelayQueue, NotReplicatedError
from delayq.torture.deployments import Sentinels, until
from delayq.torture.proxy import Proxy

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

SENDS = 200


@pytest.fixture
def pair():
    """A deployment of one's own, with a replica behind a proxy that can cut its replication."""
    with Sentinels() as deployment:
        yield deployment


@pytest.fixture
def link(pair):
    """The network between the master and its replica."""
    (replica,) = pair.replicas
    with Proxy(pair.master.url) as proxy:
        replica.ask("REPLICAOF", "127.0.0.1", urlsplit(proxy.url).port)
        until("the replica is linked", lambda: replica.is_linked() and proxy.connections)
        yield proxy


def fail_over(pair):
    killed = pair.kill_master()
    pair.await_failover(killed)


def test_what_was_sent_while_replication_was_cut_is_lost(pair, link):
    with DelayQueue("reminders", url=pair.url) as queue:
        before = queue.send_many(range(SENDS))
        master = pair.master
        until("it is replicated", lambda: _acknowledged(master))
        link.darken()
        after = [queue.send_delay_msg(number) for number in range(SENDS)]
        fail_over(pair)
        kept = [queue.get(id) for id in before.ids]
        assert None not in kept
        assert [queue.get(sent.id) for sent in after] == [None] * SENDS


def test_of_the_sends_that_returned_replicated_none_is_lost(pair, link):
    options = {"durability": "replicated", "replication_timeout": "200ms"}
    returned, refused = [], []
    with DelayQueue("reminders", url=pair.url, **options) as queue:

        def send(number):
            try:
                returned.append(queue.send_delay_msg(number).id)
            except NotReplicatedError as error:
                refused.extend(error.ids)

        for number in range(SENDS):
            send(number)
        returned += queue.send_many(range(SENDS)).ids
        link.darken()
        let_by = len(returned)
        for number in range(5):
            send(number)
        with pytest.raises(NotReplicatedError, match="only 0 of 1 replicas confirmed it in time") as caught:
            queue.send_many(range(SENDS))
        assert len(caught.value.ids) == SENDS
        assert len(returned) == let_by > SENDS
        fail_over(pair)
    with DelayQueue("reminders", url=pair.url) as queue:
        assert None not in [queue.get(id) for id in returned]
        assert queue.counts().living < len(returned) + len(refused)
        # What was refused is sent again under its id.
        assert all(queue.send_delay_msg(0, id=id).new for id in refused[-5:])


def _acknowledged(master):
    facts = master.facts("INFO", "replication")
    return f"offset={facts['master_repl_offset']}," in facts["slave0"]

"""A failover loses unreplicated messages by default, but none sent with `durability="replicated"`."""

from urllib.parse import urlsplit

import pytest

from delayq import DelayQueue, NewMessage, NotReplicatedError, SendStatus
from tests.support.deployments import REPLICATION, Sentinels, until
from tests.support.faulty_proxy import FaultyProxy

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

SENDS = 200


@pytest.fixture
def pair():
    """A separate deployment, with a replica behind a proxy that can cut its replication."""
    with Sentinels() as deployment:
        yield deployment


@pytest.fixture
def link(pair):
    """The network between the master and its replica."""
    (replica,) = pair.replicas
    with FaultyProxy(pair.master.url) as proxy:
        replica.ask("REPLICAOF", "127.0.0.1", urlsplit(proxy.url).port)
        until("the replica is linked", lambda: replica.is_linked() and proxy.connections)
        yield proxy


def fail_over(pair):
    killed = pair.kill_master()
    pair.await_failover(killed)


@pytest.mark.long
def test_messages_sent_while_replication_is_cut_are_lost(pair, link):
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


@pytest.mark.long
def test_replicated_sends_that_returned_are_never_lost(pair, link):
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
        # Refused messages can be sent again with their ids.
        assert all(queue.send_delay_msg(0, id=id).new for id in refused[-5:])


def test_too_few_replicas_raise_not_replicated_error(deployment, open_queue):
    queue = open_queue(deployment, durability="replicated")
    assert queue.send_delay_msg("kept", "1h", id="kept").new
    assert len(queue.send_many(range(1_200), "1h").new) == 1_200
    greedy = open_queue(deployment, durability="replicated", replicas=5, replication_timeout="20ms")
    tries = {
        ("a",): lambda: greedy.send_delay_msg("a", "1h", id="a"),
        ("b", "c"): lambda: greedy.send_many([NewMessage("b", id="b"), NewMessage("c", id="c")], "1h"),
        ("b",): lambda: greedy.cancel("b"),
        ("c",): lambda: greedy.reschedule("c", "2h"),
    }
    for ids, attempt in tries.items():
        with pytest.raises(NotReplicatedError, match=r"only . of 5 replicas") as caught:
            attempt()
        assert caught.value.ids == ids
    # The calls were executed nevertheless, and repeating them changes nothing.
    assert [queue.get(id) is not None for id in ("a", "b", "c")] == [True, False, True]
    assert queue.send_delay_msg("a", "1h", id="a").status is SendStatus.EXISTS
    assert queue.counts().pending == 1_203


def test_redrive_is_confirmed_by_replicas(deployment, open_queue):
    queue = open_queue(deployment, callback=lambda message: False, durability="replicated")
    queue.send_many(range(3), retries=0)
    queue.run(burst=True)
    assert queue.dead.redrive(all=True).redriven == 3
    greedy = open_queue(deployment, durability="replicated", replicas=5, replication_timeout="20ms")
    queue.run(burst=True)
    with pytest.raises(NotReplicatedError):
        greedy.dead.redrive(all=True)
    assert queue.counts().living == 3


def test_send_whose_reply_is_lost_is_confirmed_over_the_next_connection(start_redis, prefix):
    master, replica = start_redis(*REPLICATION, tcp=True), start_redis(tcp=True)
    with replica.client() as client:
        client.replicaof("127.0.0.1", master.port)
        until("the replica is linked", lambda: client.info("replication")["master_link_status"] == "up")
    options = {"durability": "replicated", "prefix": prefix, "socket_timeout": "2s"}
    with FaultyProxy(master.url) as proxy, DelayQueue("reminders", url=proxy.url, **options) as queue:
        queue.send_delay_msg("first", "1h")
        proxy.drop_replies(2)
        assert queue.send_delay_msg("second", "1h").new
        assert proxy.dropped == 2
        assert queue.counts().pending == 2


def _acknowledged(master):
    facts = master.facts("INFO", "replication")
    return f"offset={facts['master_repl_offset']}," in facts["slave0"]

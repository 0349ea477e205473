"""Every operation of a queue works with Sentinels and in a Cluster as on a single server."""

import json
import os
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
from click.testing import CliRunner

from delayq import (
    CancelOutcome,
    ConfigurationError,
    DelayQueue,
    NewMessage,
    Reject,
    RescheduleOutcome,
    SendStatus,
    ServerError,
)
from delayq.cli import main
from delayq.metrics import QueueCollector
from tests.support.faces import Blocking
from tests.support.processes import run


def test_every_operation_of_a_queue_works(deployment, open_queue):
    done, failing = [], {"nacked": 2}

    def work(message):
        if failing.get(message.payload, 0) > 0:
            failing[message.payload] -= 1
            return False
        if message.payload == "rejected":
            raise Reject("unwanted")
        if message.payload == "extended":
            assert message.extend("10s")
        done.append(message.payload)
        return True

    queue = open_queue(deployment, callback=work, events=True, dedupe_window="1h", nack_delay=0)
    queue.open()

    # Sending, cancelling and rescheduling.
    later = queue.send_delay_msg("later", "1h", id="later")
    assert later.new
    assert queue.send_delay_msg("later", "1h", id="later").status is SendStatus.EXISTS
    assert queue.send_delay_msg("even later", "2h", id="later", replace=True).status is SendStatus.REPLACED
    assert queue.get("later").payload == "even later"
    assert queue.reschedule("later", "3h") is RescheduleOutcome.RESCHEDULED
    assert queue.cancel("later") is CancelOutcome.CANCELLED
    assert queue.cancel("later") is CancelOutcome.GONE
    queue.send_schedule_msg("scheduled", datetime.now(UTC) + timedelta(days=1), headers={"a": "b"})
    assert [one.payload for one in queue.list("pending").messages] == ["scheduled"]
    assert queue.purge() == 1

    # Consuming.
    queue.send_many(["acked", "nacked", NewMessage("rejected", id="unwanted"), "extended"], run="night")
    queue.run(burst=True)
    assert sorted(done) == ["acked", "extended", "nacked"]
    (run,) = queue.runs()
    assert (run.run, run.new) == ("night", 4)
    (dead,) = queue.dead.list().messages
    assert (dead.id, dead.payload) == ("unwanted", "rejected")
    assert queue.get("unwanted").payload == "rejected"

    # The dead letter.
    assert queue.dead.redrive("unwanted").redriven == 1
    with queue.lease() as message:
        assert message.payload == "rejected"
        message.reject("still")
    assert queue.dead.purge(all=True) == 1

    # Pulling.
    queue.send_many(["one", "two", "three"])
    with queue.lease(n=3) as lease:
        one, two, three = lease
        assert one.ack()
        assert two.release()
        assert three.nack()
    assert queue.stats().totals["acked"] >= 4
    assert queue.counts().living == 2
    assert queue.purge() == 2

    kinds = {event.kind for event in queue.events()}
    assert {"sent", "replaced", "rescheduled", "cancelled", "purged", "delivered", "acked", "dead", "redriven"} <= kinds


def test_send_from_another_client_wakes_an_idle_consumer(deployment, open_queue):
    seen = threading.Event()
    consumer = open_queue(deployment, callback=lambda message: seen.set(), tick="30s")
    producer = open_queue(deployment)
    producer.open()
    consumer.start_consume()
    producer.send_delay_msg("soon", "50ms")
    assert seen.wait(30)


def test_events_can_be_followed(deployment, open_queue):
    reader, writer = open_queue(deployment, events=True), open_queue(deployment, events=True)
    writer.open()
    ids = [writer.send_delay_msg(0).id]
    followed = []
    for event in reader.events(follow=True):
        followed.append(event.id)
        if len(followed) == 5:
            break
        ids.append(writer.send_delay_msg(len(ids)).id)
    assert followed == ids


def test_cluster_client_of_redis_py_can_be_passed(redis_cluster, face, open_queue):
    module = redis if isinstance(face, Blocking) else redis.asyncio
    client = face.do(lambda: module.cluster.RedisCluster(host="127.0.0.1", port=redis_cluster.servers[0].port))
    _exercise(open_queue(redis_cluster, url=None, redis=client), open_queue(redis_cluster))
    face.do(client.close if isinstance(face, Blocking) else client.aclose)


def test_client_of_sentinels_can_be_passed(sentinels, face, open_queue):
    module = redis if isinstance(face, Blocking) else redis.asyncio
    manager = face.do(lambda: module.sentinel.Sentinel([("127.0.0.1", one.port) for one in sentinels.sentinels]))
    client = face.do(lambda: manager.master_for(sentinels.NAME))
    _exercise(open_queue(sentinels, url=None, redis=client), open_queue(sentinels))
    for one in (client, *manager.sentinels):
        face.do(one.close if isinstance(face, Blocking) else one.aclose)


def _exercise(queue, other):
    sent = queue.send_many(range(10))
    assert queue.counts().ready == 10
    assert other.get(sent.ids[3]).payload == 3
    queue.close()
    assert queue.purge() == 10


def test_a_client_of_a_replica_is_refused(sentinels, face):
    module = redis if isinstance(face, Blocking) else redis.asyncio
    addresses = [("127.0.0.1", one.port) for one in sentinels.sentinels]
    client = module.sentinel.Sentinel(addresses).slave_for(sentinels.NAME)
    with pytest.raises(ConfigurationError, match="the client reads from a replica"):
        face.open("reminders", redis=client)


def test_a_cluster_client_that_decodes_is_refused(redis_cluster):
    port = redis_cluster.servers[0].port
    with redis.cluster.RedisCluster(host="127.0.0.1", port=port, decode_responses=True) as client:  # noqa: SIM117
        with pytest.raises(ConfigurationError, match="decode_responses=True"):
            DelayQueue("reminders", redis=client)


def test_url_of_a_single_cluster_node_is_refused_with_the_reason(redis_cluster, prefix):
    replies = set()
    for node in redis_cluster.servers[:3]:
        with DelayQueue("reminders", url=node.url, prefix=prefix) as queue:
            try:
                queue.counts()
            except ServerError as error:
                replies.add(str(error))
    assert replies == {
        "counts: Redis is a node of a cluster, and the queue is on another: begin the url with redis+cluster://"
    }


def test_command_line_works_with_many_queues(deployment, prefix):
    names = sorted(f"queue-{number}" for number in range(12))
    owners = set()
    for name in names:
        with DelayQueue(name, url=deployment.url, prefix=prefix) as queue:
            queue.send_many(range(3))
            if deployment.url.startswith("redis+cluster"):
                owners.add(queue.executor.client.slot_map.owner(queue.context.calls.keys.meta))
    assert len(owners) in (0, 3)

    def cli(*arguments):
        result = CliRunner().invoke(main, ["--prefix", prefix, *arguments], env={"DELAYQ_URL": deployment.url})
        assert result.exit_code == 0, result.output
        return result.stdout

    listed = json.loads(cli("queues", "--json"))["queues"]
    assert {one["queue"]: one["pending"] + one["ready"] for one in listed} == dict.fromkeys(names, 3)
    sent = json.loads(cli("send", "queue-3", "4", "--delay", "1h", "--json"))
    assert json.loads(cli("stats", "queue-3", "--json"))["living"] == 4
    assert json.loads(cli("show", "queue-3", sent["id"], "--json"))["payload"] == 4
    cli("cancel", "queue-3", sent["id"])
    cli("purge", "queue-3", "--yes")
    assert json.loads(cli("--url", deployment.url, "stats", "queue-3", "--json"))["living"] == 0


@pytest.mark.long
def test_command_line_worker_consumes(deployment, prefix, tmp_path):
    (tmp_path / "app.py").write_text(
        "from delayq import DelayQueue\n"
        f"queue = DelayQueue('reminders', prefix={prefix!r})\n"
        "queue.callback(lambda message: print('got', message.payload, flush=True))\n"
    )
    with DelayQueue("reminders", url=deployment.url, prefix=prefix) as queue:
        queue.send_many(["one", "two"])
        command = [sys.executable, "-m", "delayq", "worker", "app:queue", "--burst"]
        environment = os.environ | {"DELAYQ_URL": deployment.url}
        done = run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["got one", "got two"]), done.stderr
        assert queue.counts().living == 0


@pytest.mark.long
def test_metrics_of_queues_on_all_nodes(deployment, prefix):
    names = [f"queue-{number}" for number in range(6)]
    for name in names:
        with DelayQueue(name, url=deployment.url, prefix=prefix, lateness_slo="99% within 1s") as queue:
            queue.send_delay_msg(1, "1h")
    for given in (names, []):
        collector = QueueCollector(*given, url=deployment.url, prefix=prefix)
        assert collector.unready() == ""
        found = {
            (sample.name, sample.labels["queue"]): sample.value
            for family in collector.collect()
            for sample in family.samples
            if "queue" in sample.labels and sample.labels.get("state", "pending") == "pending"
        }
        assert {found["delayq_messages", name] for name in names} == {1}
        assert {found["delayq_slo_objective_ratio", name] for name in names} == {0.99}
        collector.close()


def test_scripts_are_loaded_into_every_node(deployment, prefix):
    with DelayQueue("reminders", url=deployment.url, prefix=prefix) as queue:
        for node in deployment.servers:
            if node not in getattr(deployment, "sentinels", []):
                node.ask("SCRIPT", "FLUSH")
        assert queue.preload() > 20
        sha = queue.context.calls.purge().script.sha.decode()
        nodes = deployment.servers if deployment.url.startswith("redis+cluster") else [deployment.master]
        assert [node.ask("SCRIPT", "EXISTS", sha) for node in nodes] == [[1]] * len(nodes)

"""A worker of many queues with Sentinels and in a Cluster, whose queues are on different nodes."""

from collections import Counter

from tests.support.waiting import wait_until


def test_worker_shares_its_callbacks_between_queues_of_any_deployment(face, deployment, open_queue):
    started = []
    weights = {}
    for name, weight in {"critical": 6, "default": 3, "low": 1}.items():
        queue = open_queue(deployment, name, callback=lambda message: started.append(message.queue))
        queue.send_many(map(str, range(400)))
        weights[queue] = weight
    worker = face.worker(weights, concurrency=1)
    worker.start_consume()
    wait_until(lambda: len(started) >= 600)
    assert Counter(started[:600]) == {"critical": 360, "default": 180, "low": 60}
    wait_until(lambda: len(started) == 1200)
    for queue in weights:  # woken, not polled
        queue.send_delay_msg("one more")
        wait_until(lambda name=queue.name: started[-1] == name)
    assert worker.stop_consume()


def test_worker_of_a_pattern_serves_the_queues_of_any_deployment(face, deployment, open_queue):
    started = []
    tenants = open_queue(deployment, "tenants", callback=lambda message: started.append(message.queue))
    for name in ("tenant-a", "tenant-b", "tenant-c"):
        open_queue(deployment, name).send_many(["x"] * 10)
    worker = face.matching("tenant-*", tenants, concurrency=2)
    worker.start_consume()
    wait_until(lambda: Counter(started) == {"tenant-a": 10, "tenant-b": 10, "tenant-c": 10})
    open_queue(deployment, "tenant-b").send_delay_msg("one more")
    wait_until(lambda: started[30:] == ["tenant-b"])
    assert worker.stop_consume()

"""`delayq acl` prints what Redis takes, as a command and as a line of a file; `delayq preload` loads the scripts."""

import shlex

import pytest

from delayq import ConfigurationError, DelayQueue
from delayq.acl.rules import ROLES, rules
from delayq.script import names
from tests.support.redis_server import RedisServer

NOWHERE = "unix:///nowhere"


def rights(server, user):
    """Return what a user may do, as the server has understood it."""
    with server.client() as admin:
        told = admin.acl_getuser(user)
    return {name: sorted(told[name]) for name in ("flags", "commands", "keys", "channels")}


@pytest.mark.parametrize("role", ROLES)
def test_redis_takes_both_forms_alike(role, cli, start_redis, tmp_path):
    server = start_redis()
    ended = cli(NOWHERE, "acl", role.value, "--queue", "reminders", "--user", "billing")
    assert ended.code == 0
    assert "ACL SETUSER billing '>…'" in ended.err
    with server.client() as admin:
        assert admin.execute_command(*shlex.split(ended.out))
    (tmp_path / "users.acl").write_text(
        "user default on nopass ~* &* +@all\n"
        + cli(NOWHERE, "acl", role.value, "--queue", "reminders", "--user", "billing", "--aclfile").out
    )
    other = start_redis("--aclfile", str(tmp_path / "users.acl"))
    assert rights(server, "billing") == rights(other, "billing")


def test_the_rule_replaces_rights_and_keeps_passwords(cli, start_redis):
    server = start_redis()
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "delayq-inspector", "on", ">secret", "~*", "&*", "+@all")
        admin.execute_command(*shlex.split(cli(NOWHERE, "acl", "inspector").out))
        told = admin.acl_getuser("delayq-inspector")
    assert len(told["passwords"]) == 1
    assert "~*" not in told["keys"]
    assert "+@all" not in told["commands"]
    assert not told["channels"]


def test_roles_are_named_together_and_the_prefix_is_that_of_the_command(cli):
    out = cli(NOWHERE, "--prefix", "shop", "acl", "consumer", "producer").out
    assert out.startswith("ACL SETUSER delayq-consumer-producer on resetkeys ~shop:queues ~shop:{*}:")
    words = out.split()
    assert len(words) == len(set(words))
    assert {"~shop:{*}:ready", "~shop:{*}:runs", "+blpop", "+hexists"} <= set(words)
    assert ">" not in out


@pytest.mark.parametrize(
    "arguments",
    [[], ["owner"], ["producer", "--queue", "a b"], ["producer", "--queue", "*"], ["producer", "--user", "a >x"]],
    ids=str,
)
def test_what_is_no_role_queue_or_user_is_wrong_usage(cli, arguments):
    ended = cli(NOWHERE, "acl", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == 1


def test_wrong_arguments_make_no_rules():
    for roles, prefix, queue in ((["owner"], "delayq", None), (["admin"], "a*", None), (["admin"], "delayq", "a}*")):
        with pytest.raises(ConfigurationError):
            rules(roles, prefix=prefix, queue=queue)


def test_preload_loads_every_script_and_stores_nothing(cli):
    with RedisServer() as server:
        assert cli(server.url, "preload", "--engine", "delay").out == f"loaded {len(names())} scripts\n"
        with server.client() as client:
            assert client.dbsize() == 0
            assert client.info("memory")["number_of_cached_scripts"] == len(names())
        with DelayQueue("reminders", url=server.url) as queue:
            assert queue.send_delay_msg(1).new
    assert cli(NOWHERE, "--timeout", "100ms", "preload").code == 69

"""`delayq acl` prints a rule as a command and as a line of an ACL file; `delayq preload` loads the scripts."""

import re
import shlex

import pytest

from delayq import ConfigurationError, DelayQueue
from delayq.broker.scripts import BUDGETS, names, script
from delayq.broker.shared_calls import preload
from delayq.cli.acl.grants import ROLES
from delayq.cli.acl.roles import rules
from tests.support.redis_server import RedisServer

NOWHERE = "unix:///nowhere"


def rights(server, user):
    """Return the rights of a user as the server reports them."""
    with server.client() as admin:
        user_info = admin.acl_getuser(user)
    selectors = sorted(
        word for selector in user_info["selectors"] for word in re.findall(r"[^\s',\[\]]+", str(selector))
    )
    return {name: sorted(user_info[name]) for name in ("flags", "commands", "keys", "channels")} | {"on": selectors}


@pytest.mark.parametrize("role", ROLES)
def test_command_and_acl_file_give_the_same_rights(role, cli, start_redis, tmp_path):
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


def test_rule_replaces_rights_and_keeps_passwords(cli, start_redis):
    server = start_redis()
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "delayq-inspector", "on", ">secret", "~*", "&*", "+@all", "(~x +@all)")
        admin.execute_command(*shlex.split(cli(NOWHERE, "acl", "inspector").out))
        user_info = admin.acl_getuser("delayq-inspector")
    assert len(user_info["passwords"]) == 1
    assert "~*" not in user_info["keys"]
    assert len(user_info["selectors"]) == 1
    assert "+@all" not in user_info["commands"]
    assert not user_info["channels"]


def test_several_roles_are_combined_under_the_given_prefix(cli):
    out = cli(NOWHERE, "--prefix", "shop", "acl", "consumer", "producer").out
    assert out.startswith("ACL SETUSER delayq-consumer-producer on clearselectors resetkeys ~shop:{*}:")
    assert out.endswith(" (~shop:queues +sadd +sscan)\n")
    words = out.rpartition(" (")[0].split()
    assert len(words) == len(set(words))
    assert {"~shop:{*}:ready", "~shop:{*}:runs", "+blpop", "+hexists"} <= set(words)
    assert ">" not in out


@pytest.mark.parametrize(
    "arguments",
    [[], ["owner"], ["producer", "--queue", "a b"], ["producer", "--queue", "*"], ["producer", "--user", "a >x"]],
    ids=str,
)
def test_invalid_role_queue_or_user_prints_one_line(cli, arguments):
    ended = cli(NOWHERE, "acl", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == 1


def test_invalid_arguments_of_rules_are_refused():
    for roles, prefix, queue in ((["owner"], "delayq", None), (["admin"], "a*", None), (["admin"], "delayq", "a}*")):
        with pytest.raises(ConfigurationError):
            rules(roles, prefix=prefix, queue=queue)


def test_preload_loads_every_script_and_stores_nothing(cli):
    with RedisServer() as server:
        assert cli(server.url, "preload", "--engine", "delay").out == f"loaded {len(preload())} scripts\n"
        with server.client() as client:
            assert client.dbsize() == 0
            assert client.info("memory")["number_of_cached_scripts"] == len(preload())
            asked = [script(name).reading(budget) for name in names() for budget in BUDGETS]
            assert all(client.script_exists(*(one.sha for one in asked)))  # for a user who may load none
        with DelayQueue("reminders", url=server.url) as queue:
            assert queue.send_delay_msg(1).new
    assert cli(NOWHERE, "--timeout", "100ms", "preload").code == 69

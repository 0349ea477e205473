"""The session that the pipelines run in."""

import re
import subprocess
import sys
from threading import Thread

import pytest

import delayq.spark
from delayq import ConfigurationError
from delayq.spark import session

TELL = """
from delayq import ConfigurationError
from delayq.spark import session

try:
    {call}
except ConfigurationError as error:
    print(error)
"""


def ran(program):
    """Run a program in a process of its own: a process has one session, and this one's is shared by all tests."""
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)


def test_a_name_that_the_package_has_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'sesion'"):
        _ = delayq.spark.sesion


def test_the_function_is_not_hidden_by_the_module_of_its_name():
    program = "import delayq.spark.session, delayq.spark; print(callable(delayq.spark.session))"
    assert ran(program).stdout == "True\n"


def test_every_name_of_the_package_can_be_had():
    assert set(delayq.spark.__all__) <= set(dir(delayq.spark))
    for name in delayq.spark.__all__:
        assert callable(getattr(delayq.spark, name))


def test_without_pyspark_it_is_told_how_to_get_it(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'delayq\[spark\]'"):
        session()


def test_an_active_session_is_used_as_it_is(spark):
    assert session("other", master="local[7]", **{"spark.sql.shuffle.partitions": 77}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_an_active_session_is_used_by_other_threads_too(spark):
    found = []
    thread = Thread(target=lambda: found.append(session()))
    thread.start()
    thread.join()
    assert found == [spark]


def test_times_are_utc_and_python_workers_of_this_interpreter(spark):
    from pyspark.sql import functions as F

    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    executable = F.udf(lambda _: __import__("sys").executable)
    assert spark.range(1).select(executable("id")).head()[0] == sys.executable


@pytest.mark.parametrize("master", ["cloud", "local[]", "local[two]", "http://spark", "spark://", "yarn2", ""])
def test_a_master_that_is_none_is_told_in_a_sentence(master):
    with pytest.raises(ConfigurationError, match=re.escape(f"master cannot be {master!r}: local[4], spark://")):
        session(master=master)


@pytest.mark.spark
def test_a_jvm_that_does_not_start_is_told_in_a_sentence():
    done = ran(TELL.format(call="session(**{'spark.driver.memory': 'much'})"))
    assert done.stdout.startswith("Spark does not start on local[*]: [JAVA_GATEWAY_EXITED]")
    assert "Xmxmuch" in done.stderr


@pytest.mark.spark
def test_settings_that_are_given_go_before_ours():
    given = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.driver.extraJavaOptions": "-Dsaid=yes"}
    program = f"""
from delayq.spark import session

spark = session(master="local[1]", **{given})
print(spark.conf.get("spark.sql.session.timeZone"))
print(spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'said')").head()[0])
"""
    assert ran(program).stdout == "Asia/Tokyo\nyes\n"


def test_a_session_of_spark_connect(connect_url):
    program = f"""
from delayq.spark import session

spark = session(master={connect_url!r}, **{{"spark.sql.shuffle.partitions": 3}})
print(type(spark).__module__, spark.range(10).count())
print(spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.sql.shuffle.partitions"))
print(session() is spark)
"""
    assert ran(program).stdout == "pyspark.sql.connect.session 10\nUTC 3\nTrue\n"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sc://localhost:1/;token=secret", "no Spark Connect server answers at sc://localhost:1"),
        ("sc://localhost/path", "Spark does not start on sc://localhost/path: [INVALID_CONNECT_URL]"),
    ],
)
def test_a_connect_server_that_is_none_is_told_without_its_token(url, told):
    told_by = ran(f"""
from importlib import import_module
import_module("delayq.spark.session")._CONNECT_PATIENCE = 0.1
{TELL.format(call=f"session(master={url!r})")}
""").stdout
    assert told_by.startswith(told)
    assert "secret" not in told_by


def test_without_grpc_it_is_told_how_to_get_spark_connect():
    done = ran("import sys; sys.modules['grpc'] = None\n" + TELL.format(call="session(master='sc://localhost')"))
    assert done.stdout.endswith("`pip install 'delayq[spark-connect]'`\n")

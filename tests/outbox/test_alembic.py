"""The recipe of the handbook for Alembic makes the tables that `outbox.create` makes."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect
from sqlalchemy.pool import NullPool

import delayq
from delayq import outbox

alembic = pytest.importorskip("alembic", reason="alembic is not installed")

PAGE = Path(delayq.__file__).parent / "docs" / "outbox.md"
BASE = """
from sqlalchemy.orm import DeclarativeBase

class Base(DeclarativeBase):
    pass

"""


def recipe():
    """Return the part of `env.py` that the page shows."""
    (found,) = re.findall(r"```python\n((?:(?!```).)*target_metadata.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return BASE + found


@pytest.fixture
def project(database_url, tmp_path):
    """A project of Alembic whose database has no tables of delayq."""
    from alembic import command
    from alembic.config import Config

    engine = create_engine(database_url, poolclass=NullPool)
    with engine.begin() as connection:
        outbox.metadata.drop_all(connection)
        connection.exec_driver_sql("DROP TABLE IF EXISTS alembic_version")
    config = Config(tmp_path / "alembic.ini", stdout=StringIO())
    command.init(config, str(tmp_path / "migrations"))
    environment = tmp_path / "migrations" / "env.py"
    text = environment.read_text()
    assert text.count("target_metadata = None\n") == 1
    environment.write_text(text.replace("target_metadata = None\n", recipe()))
    config.set_main_option("sqlalchemy.url", database_url.render_as_string(hide_password=False).replace("%", "%%"))
    return config, engine


def where_of(index):
    """Return the condition of a partial index, as the database tells it."""
    return [str(text) for name, text in index.get("dialect_options", {}).items() if name.endswith("_where")]


def shapes(engine):
    """Return columns, indexes and keys of every table of delayq."""
    looking = inspect(engine)
    return {
        table: (
            [(one["name"], str(one["type"]), one["nullable"]) for one in looking.get_columns(table)],
            sorted((one["name"], one["column_names"], where_of(one)) for one in looking.get_indexes(table)),
            looking.get_pk_constraint(table)["constrained_columns"],
        )
        for table in outbox.metadata.tables
    }


def test_generated_migration_makes_the_tables(project):
    from alembic import command

    config, engine = project
    command.revision(config, message="outbox of delayq", autogenerate=True)
    command.upgrade(config, "head")
    migrated = shapes(engine)
    command.check(config)  # there is nothing left to migrate
    outbox.metadata.drop_all(engine)
    outbox.create(engine)
    assert migrated == shapes(engine)


def test_migrated_outbox_is_relayed(project, relay, orders):
    from alembic import command

    config, engine = project
    command.revision(config, message="outbox of delayq", autogenerate=True)
    command.upgrade(config, "head")
    with engine.begin() as connection:
        id = outbox.send(connection, orders, 1)
    assert relay() == 1
    assert orders.get(id).payload == 1

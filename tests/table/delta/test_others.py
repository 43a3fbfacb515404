"""What others do to a Delta table between epochs, and what `frazil verify` counts then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.engine.verify import _look_at_files
from frazil.protocol.verify import Check, check_files, check_history, check_others, check_register, check_rows
from frazil.protocol.verify.finding import Level
from tests.table.delta.landing import WRITER, Landing, Readers

pytestmark = pytest.mark.real


def ids(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"id": pa.array(numbers, pa.int64()), "word": ["é 1" if n % 2 else "%" for n in numbers]})


def verified(landing: Landing) -> dict[str, Check]:
    """The checks of `frazil verify` that look at a table alone."""
    contents = landing.contents()
    seen = contents.seen(WRITER)
    assert seen is not None
    files = _look_at_files(contents, landing.path.name, lambda *_: None)
    checks = [check_history(seen), check_register(seen), check_rows(seen, files), check_files(seen, files)]
    found = {check.name: check for check in [*checks, check_others(seen)]}
    broken = [f.message for check in found.values() for f in check.findings if f.level is Level.BROKEN]
    assert not broken, broken
    return found


def live(landing: Landing, readers: Readers) -> int:
    """As verify counts them, and as everybody reads them."""
    counted = {name: rows[0][0] for name, rows in readers.ask(landing.path, "SELECT count(*) FROM {t}").items()}
    assert len(set(counted.values())) == 1, counted
    verdict = verified(landing)
    assert verdict["rows"].numbers["live"] == counted["spark"]
    return counted["spark"]


def test_rows_that_spark_deletes_in_place_are_counted_out(folder: Path, delta_spark: Any, readers: Readers) -> None:
    """Deletion vectors, then OPTIMIZE, VACUUM, RESTORE and a log that is cleaned up: every count stays right."""
    sql, table = delta_spark.sql, f"delta.`{folder}`"
    sql(
        f"CREATE TABLE {table} (id BIGINT, word STRING) USING delta PARTITIONED BY (word) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    landing = Landing(folder)
    landing.land(ids(0, 20))
    sql(f"DELETE FROM {table} WHERE id < 5")
    assert live(landing, readers) == 15
    landing.land(ids(20, 20))
    sql(f"DELETE FROM {table} WHERE id BETWEEN 3 AND 22")
    assert live(landing, readers) == 17
    before = landing.delta().version()
    sql(f"DELETE FROM {table} WHERE word = '%'")
    sql(f"RESTORE TABLE {table} TO VERSION AS OF {before}")
    assert live(landing, readers) == 17
    sql(f"OPTIMIZE {table}")
    landing.land(ids(40, 2))
    assert live(landing, readers) == 19
    landing.delta().create_checkpoint()
    for version in range(landing.delta().version()):
        (folder / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)
    landing.land(ids(42, 2))
    sql(f"DELETE FROM {table} WHERE id = 42")
    assert live(landing, readers) == 20


def test_a_log_that_begins_between_two_checkpoints_is_counted_back_from_the_head(tmp_path: Path) -> None:
    """TEST-17: nobody can load the state that such a log begins with."""
    landing = Landing(tmp_path / "orders", "id BIGINT, word STRING")
    for number in range(4):
        landing.land(ids(10 * number, 10))
    landing.delta().optimize.compact()
    landing.land(ids(40, 10))
    landing.delta().create_checkpoint()
    for version in range(4):
        (landing.path / "_delta_log" / f"{version:020d}.json").unlink()

    rows = verified(landing)["rows"].numbers

    assert (rows["live"], rows["expired"], rows["landed"]) == (50, 20, 30)

"""Delta tables in an object store: a real S3 server, and servers that know less than that."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from frazil.errors import CatalogUnavailable, SetupError, UnsupportedCatalog
from frazil.pipeline.schema import parse_schema
from frazil.table.delta import DeltaLake, reach, require_spark_writes
from frazil.table.delta.place import Place
from frazil.table.wish import TableWish
from tests.services.s3 import S3, storage_at
from tests.services.store_proxy import StoreProxy, forgetful, unknowing
from tests.table.delta.landing import Landing
from tests.table.delta.test_paths import WORDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

WISH = TableWish("orders", parse_schema("id BIGINT, word STRING"), ["word"])


@pytest.fixture
def address(s3: S3) -> str:
    return f"{s3.make_bucket()}/lake/orders"


def leftovers(s3: S3, address: str) -> list[str]:
    folder = s3.buckets / address.removeprefix("s3://")
    return [path.name for path in folder.rglob("*") if path.is_file() and "_delta_log" not in path.parts]


def rows(count: int) -> pa.Table:
    words = [WORDS[number % len(WORDS)] for number in range(count)]
    return pa.table({"id": pa.array(range(count), pa.int64()), "word": words})


def test_files_of_every_name_land_are_found_and_are_cleaned_up(s3: S3, address: str) -> None:
    """STORE-01, FILE-10: as in a folder; by both of S3's schemes."""
    landing = Landing(address, "id BIGINT, word STRING", ["word"], storage=s3.storage)
    landing.commit(landing.write(rows(len(WORDS))))
    contents = landing.contents()
    assert {contents.size_of(file.path) == file.size for file in contents.files()} == {True}
    again = Landing(address.replace("s3:", "s3a:"), storage=s3.storage)
    files = again.write(rows(3))
    assert set(again.table.find_files(again.table.uri, lambda path: path.endswith(".parquet"))) >= {
        file.path for file in files
    }
    assert again.table.referenced([file.path for file in files], 0) == set()
    again.table.delete_files([file.path for file in files])
    assert contents.size_of(files[0].path) is None
    found = landing.delta().to_pyarrow_table().to_pylist()
    assert {row["id"]: row["word"] for row in found} == {number: word or None for number, word in enumerate(WORDS)}


def test_a_store_is_tried_and_nothing_of_it_is_left(s3: S3, address: str) -> None:
    """FAULT-25: one that refuses the second of two writers is taken."""
    DeltaLake({"orders": address}, storage=s3.storage).open(WISH)
    assert leftovers(s3, address) == []


def test_a_store_on_which_the_second_writer_wins_is_refused(s3: S3, address: str) -> None:
    """FAULT-25, STORE-03: unless somebody answers for it that there is one driver; that is said loudly."""
    with StoreProxy(s3, forgetful) as proxy:
        told = storage_at(proxy.endpoint)
        with pytest.raises(UnsupportedCatalog, match=r"second one win.*(?s:.)*table.unsafe_rename") as refused:
            DeltaLake({"orders": address}, storage=told).open(WISH)
        assert proxy.endpoint in str(refused.value)
        assert DeltaLake({"orders": address}, storage=told).find("orders") is None, "nothing was created"
        assert leftovers(s3, address) == []
        with capture_logs() as logs:
            DeltaLake({"orders": address}, storage=told, unsafe=True).open(WISH)
        assert [line["log_level"] for line in logs if "never let another process" in line["event"]] == ["warning"]


def test_a_store_that_knows_no_conditions_is_refused_whoever_answers_for_it(s3: S3, address: str) -> None:
    """STORE-03: delta-rs writes no version without them."""
    with (
        StoreProxy(s3, unknowing) as proxy,
        pytest.raises(UnsupportedCatalog, match="does not know conditional writes"),
    ):
        DeltaLake({"orders": address}, storage=storage_at(proxy.endpoint), unsafe=True).open(WISH)


@pytest.mark.parametrize("look", [lambda lake: lake.open(WISH), lambda lake: lake.find("orders")])
def test_a_store_that_does_not_answer_is_named(look: Callable[[DeltaLake], object]) -> None:
    """STORE-02: with the address that was tried."""
    nobody = "http://127.0.0.1:1"
    with pytest.raises(CatalogUnavailable, match=f"{nobody}/lake/orders/"):
        look(DeltaLake({"orders": "s3://lake/orders"}, storage=storage_at(nobody)))


def test_wrong_credentials_and_missing_buckets_are_told(s3: S3, address: str) -> None:
    """STORE-02: at open."""
    wrong = {**s3.storage, "s3.secret-access-key": "a guess"}
    with pytest.raises(CatalogUnavailable, match="SignatureDoesNotMatch"):
        DeltaLake({"orders": address}, storage=wrong).open(WISH)
    with pytest.raises(CatalogUnavailable, match="NoSuchBucket"):
        DeltaLake({"orders": "s3://nobody-made-this/orders"}, storage=s3.storage).open(WISH)


def test_two_drivers_that_race_for_every_version_lose_and_double_nothing(s3: S3, address: str) -> None:
    """FAULT-25, FAULT-05: of two versions with one number, one lands; the other driver looks, and tries again."""
    epochs, size = 6, 3
    drivers = [
        Landing(address, "id BIGINT", storage=s3.storage, writer=f"driver-{number}", attempts=100)
        for number in range(2)
    ]
    for driver in drivers:
        driver.start()

    def drive(number: int) -> None:
        for epoch in range(epochs):
            first = (number * epochs + epoch) * size
            rows = pa.table({"id": pa.array(range(first, first + size), pa.int64())})
            drivers[number].commit(drivers[number].write(rows))

    with capture_logs() as logs, ThreadPoolExecutor() as pool:
        list(pool.map(drive, range(2)))
    table = drivers[0].delta()
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == list(range(2 * epochs * size))
    assert table.version() == 2 * (epochs + 1), "one for each epoch and each start"
    assert any(line["event"] == "commit failed" for line in logs), "they never met"


def test_a_spark_that_cannot_write_there_as_others_do_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULT-25, STORE-02: one without a way to the store, and one that would write over others' versions."""
    bucket = Place.at("s3://lake/orders")
    require_spark_writes("orders", bucket, spark)
    with pytest.raises(SetupError, match=r"no way to gs://lake/orders(?s:.)*gcs-connector"):
        require_spark_writes("orders", Place.at("gs://lake/orders"), spark)
    monkeypatch.setattr(reach, "has_log_store", lambda _: False)
    with pytest.raises(SetupError, match=r"spark\.delta\.logStore\.s3a\.impl=frazil\.ConditionalLogStore"):
        require_spark_writes("orders", bucket, spark)
    require_spark_writes("orders", bucket, spark, unsafe=True)

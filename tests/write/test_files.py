"""What a written file holds, how large it grows, and what it is called."""

from __future__ import annotations

import os
import pickle
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from frazil.errors import InvalidState, StorageUnavailable
from frazil.write import FileName, TableWriter

MIB = 1024 * 1024


def random_text(rows: int, width: int) -> pa.Array:
    return pa.array([os.urandom(width // 2).hex() for _ in range(rows)])


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The kernel refuses to let a file grow further, much as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_every_column_of_a_file_carries_the_tables_field_id(shop):
    """DEC-05"""
    (file,) = shop.write(shop.target(), shop.orders(3))
    schema = str(shop.parquet(file).schema)
    ids = {name: int(i) for i, name in re.findall(r"field_id=(\d+) (\w+)", schema)}
    assert ids == {
        "order_id": 1,
        "customer": 2,
        "amount": 3,
        "weight": 4,
        "placed_at": 5,
        "tags": 6,
        "element": 7,
        "address": 8,
        "city": 9,
    }


def test_rows_come_back_as_they_went_in(shop):
    """DEC-02"""
    batches = [shop.orders(5, customer=pa.array(list("abcde"))), shop.orders(2, weight=pa.array([1.5, None]))]
    (file,) = shop.write(shop.target(), *batches)
    table = shop.parquet(file).read()
    assert table["order_id"].to_pylist() == [0, 1, 2, 3, 4, 0, 1]
    assert table["customer"].to_pylist() == [*"abcde", None, None]
    assert table["weight"].to_pylist() == [None] * 5 + [1.5, None]
    assert file.record_count == 7


def test_row_groups_pages_dictionary_and_statistics_follow_the_target(shop):
    """FILE-02"""
    target = shop.target(row_group_rows=1000, dictionary=False, compression="uncompressed", page_size_bytes=1024)
    (file,) = shop.write(target, shop.orders(1500), shop.orders(1500))
    footer = shop.parquet(file).metadata
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [1000, 1000, 1000]
    column = footer.row_group(0).column(0)
    assert column.is_stats_set
    assert not column.has_dictionary_page
    assert len(file.split_offsets) == 3


def test_only_columns_whose_values_repeat_get_a_dictionary(shop):
    """FILE-02"""
    batch = shop.orders(
        6000,
        customer=pa.array(["anna", "bert", "carl"] * 2000),
        weight=pa.array([float(number) for number in range(6000)]),
        tags=pa.array([[f"tag {number}"] for number in range(6000)]),
    )
    (file,) = shop.write(shop.target(), batch)
    group = shop.parquet(file).metadata.row_group(0)
    columns = [group.column(position) for position in range(group.num_columns)]
    with_dictionary = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert {"customer", "tags.list.element"} <= with_dictionary
    assert not with_dictionary & {"order_id", "weight"}
    assert shop.ids([file]) == list(range(6000))


@pytest.mark.parametrize("codec", ["snappy", "zstd", "lz4", "gzip"])
def test_each_codec_is_the_one_in_the_file(shop, codec):
    """FILE-03"""
    (file,) = shop.write(shop.target(compression=codec), shop.orders(1000))
    assert shop.parquet(file).metadata.row_group(0).column(0).compression == codec.upper()
    assert shop.ids([file]) == list(range(1000))


def test_full_files_are_within_a_tenth_of_the_target_size(shop):
    """FILE-04"""
    batches = [shop.orders(4000, customer=random_text(4000, 200)) for _ in range(20)]
    files = shop.write(shop.target(target_file_size_bytes=MIB), *batches)
    full, last = files[:-1], files[-1]
    assert len(full) > 3
    assert all(0.9 * MIB <= file.file_size_bytes <= 1.1 * MIB for file in full)
    assert last.file_size_bytes <= 1.1 * MIB
    assert len(shop.ids(files)) == 80_000


def test_a_row_larger_than_the_target_gets_a_file_of_its_own(shop):
    files = shop.write(shop.target(target_file_size_bytes=10_000), shop.orders(3, customer=random_text(3, 40_000)))
    assert [file.record_count for file in files] == [1, 1, 1]


def test_rows_waiting_for_their_row_group_stay_within_the_bound(shop):
    """A row group is written early rather than let the rows in memory grow."""
    batches = [shop.orders(1000, customer=random_text(1000, 200)) for _ in range(10)]
    (file,) = shop.write(shop.target(), *batches, max_waiting_bytes=500_000)
    assert shop.parquet(file).metadata.num_row_groups >= 4
    assert file.record_count == 10_000


def test_two_attempts_of_one_task_share_no_path(shop):
    """FILE-07 in the reading of DESIGN section 8"""
    first = shop.write(shop.target(), shop.orders(3))
    second = shop.write(shop.target(), shop.orders(3))
    assert first[0].path != second[0].path
    assert len(shop.files_on_disk()) == 2


def test_a_name_tells_writer_epoch_task_and_label_and_is_safe_in_a_path():
    name = FileName("../Bestellungen für/uns", epoch=41, task=3, label="orders:0:5-9", token="cafe")
    assert name.numbered(2) == "Bestellungen_f_r_uns-e41-t3-orders_0_5-9-cafe-00002.parquet"
    assert FileName("_ö", 1, 0, token="t").numbered(1) == "writer-e1-t0-t-00001.parquet"


def test_all_files_of_an_epoch_carry_its_token_beside_their_own():
    """REC-12: chosen before the first task begins, so that what a crash leaves behind can be found."""
    names = [FileName("orders", 4, task, "sql", epoch_token="e" * 12).numbered(1) for task in (0, 1)]
    assert all(re.fullmatch(r"orders-e4-t[01]-sql-e{12}-[0-9a-f]{12}-00001\.parquet", name) for name in names)
    assert names[0].split("-")[-2] != names[1].split("-")[-2]


def test_a_file_that_is_already_there_is_not_touched(shop):
    name = FileName("orders", 1, 0)
    shop.folder.mkdir()
    there = shop.folder / name.numbered(1)
    there.write_text("somebody else's")
    with pytest.raises(StorageUnavailable, match="already exists"):
        TableWriter(shop.target(), name).write(shop.orders(1))
    assert there.read_text() == "somebody else's"


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "{}", "{}/"])
def test_every_spelling_of_a_local_location_works(shop, form):
    (file,) = shop.write(shop.target(location=form.format(shop.folder)), shop.orders(3))
    assert len(shop.files_on_disk()) == 1
    assert file.path.startswith(form.format(shop.folder))
    assert file.file_size_bytes == shop.files_on_disk()[0].stat().st_size


def test_an_aborted_writer_leaves_nothing_behind(shop):
    target = shop.target(target_file_size_bytes=100_000)
    writer = shop.writer(target)
    closed = writer.write(shop.orders(4000, customer=random_text(4000, 200)))
    assert closed
    assert shop.files_on_disk()
    writer.abort()
    assert shop.files_on_disk() == []


def test_a_closed_or_aborted_writer_takes_no_more_rows(shop):
    closed, aborted = shop.writer(shop.target()), shop.writer(shop.target())
    closed.close()
    aborted.abort()
    for writer in (closed, aborted):
        with pytest.raises(InvalidState, match="new TableWriter"):
            writer.write(shop.orders(1))


def test_a_writer_without_rows_makes_no_file(shop):
    assert shop.write(shop.target(), shop.orders(0)) == []
    assert shop.files_on_disk() == []


def test_a_file_in_the_place_of_the_folder_is_named_in_the_error(shop):
    shop.folder.write_text("not a folder")
    with pytest.raises(StorageUnavailable, match=re.escape(str(shop.folder))) as error:
        shop.write(shop.target(), shop.orders(1))
    assert "permissions" in error.value.remedy
    assert pickle.loads(pickle.dumps(error.value)).message == error.value.message


def test_a_disk_that_fills_up_leaves_no_partial_file(shop):
    batches = [shop.orders(1000, customer=random_text(1000, 200)) for _ in range(20)]
    with files_no_larger_than(300_000), pytest.raises(StorageUnavailable, match="cannot write"):
        shop.write(shop.target(row_group_rows=1000), *batches)
    assert shop.files_on_disk() == []


def test_a_target_travels_in_a_task_closure(shop):
    assert pickle.loads(pickle.dumps(shop.target())) == shop.target()


def test_a_plain_path_works_without_a_folder_in_front_of_it(tmp_path: Path, shop):
    (file,) = shop.write(shop.target(location=str(tmp_path / "a" / "b c")), shop.orders(1))
    assert shop.ids([file]) == [0]


def test_a_codec_that_does_not_exist_leaves_no_empty_file(shop):
    with pytest.raises(Exception, match="middle-out"):
        shop.write(shop.target(compression="middle-out"), shop.orders(1))
    assert shop.files_on_disk() == []

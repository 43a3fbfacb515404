"""Records to changes: rows that say what happens to them.

Every record is accounted for: it becomes a change, or two where an update moves a row to another key, or a dead
letter, or it is ignored because it says nothing of a row. What stops the pipeline does so at the first such record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from frazil.changes import BEFORE, OP, ORDER, UPDATED, WEIGHT, ChangePlan
from frazil.decode.columns import (
    METADATA_FIELDS,
    Decoded,
    DecodePlan,
    arrow_schema,
    dead_letters,
    metadata_columns,
    offset_column,
    select,
)
from frazil.decode.envelopes import (
    LETTERS,
    Code,
    Images,
    Layout,
    Marks,
    Places,
    marks,
)
from frazil.decode.json import undecodable
from frazil.decode.keys import MessageKeys
from frazil.decode.readers import envelope_reader
from frazil.decode.sheet import NO_IMAGE, Laid, Sheet, taken
from frazil.decode.unavailable import unavailable
from frazil.errors import UndecodableRecord
from frazil.records import Records

_log = structlog.get_logger()


def change_schema(plan: DecodePlan) -> pa.Schema:
    """The Arrow schema of changes: the plan's columns, and those of changes behind them."""
    assert plan.changes is not None
    declared = _declared(plan)
    metadata = list(arrow_schema(plan.schema))[len(declared) :]
    columns = [*declared, *metadata, pa.field(OP, pa.string()), pa.field(ORDER, pa.int64())]
    if plan.changes.timed:
        columns.append(pa.field(UPDATED, _TIME))
    if plan.changes.before:
        columns.append(pa.field(BEFORE, pa.struct([declared.field(name) for name in plan.changes.before])))
    if plan.changes.whole:
        columns.append(pa.field(WEIGHT, pa.int64()))
    return pa.schema(columns)


def _declared(plan: DecodePlan) -> pa.Schema:
    """Nullable, all of them: a delete has none but its key."""
    columns = list(arrow_schema(plan.schema))[: -len(METADATA_FIELDS) if plan.metadata else None]
    return pa.schema([each.with_nullable(True) for each in columns])


class ChangeDecoder:
    """Decodes runs of records by one plan."""

    def __init__(self, plan: DecodePlan) -> None:
        assert plan.changes is not None
        self._plan = plan
        self._changes: ChangePlan = plan.changes
        self._schema = change_schema(plan)
        layout = Layout(plan.changes, _declared(plan), plan.binary, plan.epoch_units, plan.catch_all)
        self._layout = layout
        self._reader = envelope_reader(layout)
        self._message_keys = MessageKeys(
            layout.keys, plan.changes.key_format, layout.spelling("", "payload."), ordered=plan.changes.ordered
        )
        self._key_places = [layout.columns.get_field_index(name) for name in plan.changes.keys]
        declared = arrow_schema(plan.schema)
        self._required = [
            i
            for i, name in enumerate(layout.columns.names)
            if not declared.field(name).nullable and i not in self._key_places
        ]
        self._has_warned = False

    def decode(self, records: Records) -> Decoded:
        """The changes of these records in their order, and those that could not be decoded."""
        fates = _Fates(records)
        sheet = Sheet(self._layout)
        absent = [i for i, value in enumerate(records.values) if value is None] if None in records.values else []
        images = self._read(records, absent, fates)
        self._settle_ops(images, fates)
        self._require_rows(images, fates)
        times = self._times(images, fates) if self._changes.timed else None
        own_key, moved = self._own_keys(images)
        if self._changes.envelope == "debezium":
            self._refuse_unavailable(images, fates)
            self._verify_message_keys(images, moved, fates)
        self._lay_out(images, own_key, moved, absent, fates, sheet)
        return self._decoded(records, sheet, fates, times, _weights(images, len(records)))

    def _read(self, records: Records, absent: list[int], fates: _Fates) -> Images:
        """What the values say, by positions of the records."""
        present = np.delete(np.arange(len(records)), absent)
        values = [value for value in records.values if value is not None] if absent else records.values
        images = self._reader.read(cast(list[bytes], values))
        images.positions = present[images.positions]
        fates.errors |= {int(present[i]): words for i, words in images.errors.items()}
        return images

    def _settle_ops(self, images: Images, fates: _Fates) -> None:
        """What to do with operations that are not known, and with truncates."""
        unknown = np.flatnonzero(images.codes == Code.UNKNOWN)
        fates.unknown_ops += len(unknown)
        for place in unknown:
            self._settle_unknown(images, int(place), fates)
        if self._changes.truncate != "apply":
            for place in np.flatnonzero(images.codes == Code.TRUNCATE):
                if self._changes.truncate == "fail":
                    fates.stop(images, int(place), "truncates the table", _TRUNCATE_REMEDY)
                else:
                    images.codes[place] = Code.IGNORED
        fates.ignored += int(np.count_nonzero(images.codes == Code.IGNORED))

    def _settle_unknown(self, images: Images, place: int, fates: _Fates) -> None:
        assert images.ops is not None
        op = images.ops[place].as_py()
        said = "no operation" if op is None else f'the operation "{op}"'
        words = f"{said}: known are {', '.join(self._reader.known_ops)}"
        match self._changes.unknown_op:
            case "fail":
                fates.stop(images, place, f"has {words}", _UNKNOWN_REMEDY)
            case "dead-letter":
                fates.kill(images, place, words)
            case "warn-insert":
                images.codes[place] = Code.INSERT if self._changes.whole else Code.UPDATE
                if not self._has_warned:
                    _log.warning("unknown operation taken for an upsert", op=op, **fates.origin(images, place))
                self._has_warned = True

    def _require_rows(self, images: Images, fates: _Fates) -> None:
        """A row that is there must have its key, and what else is NOT NULL."""
        upserts = (images.codes == Code.INSERT) | (images.codes == Code.UPDATE)
        for place in np.flatnonzero(upserts & ~images.has_after):
            fates.kill(images, int(place), "no after, which has the row")
        rows = upserts & images.has_after
        keyed = rows | (images.codes == Code.DELETE) if self._reader.deletes_are_rows else rows
        for column in [*self._key_places, *self._required]:
            if not images.after[column].null_count:
                continue
            is_key = column in self._key_places
            name = f"{self._reader.prefix}{self._layout.columns.field(column).name}"
            kind = "a key column" if is_key else "NOT NULL"
            missing = (keyed if is_key else rows) & marks(images.after[column].is_null())
            for place in np.flatnonzero(missing):
                fates.kill(images, int(place), f"{name} is {kind}, but null or missing")
        if self._changes.whole:
            self._require_old_rows(images, fates)

    def _require_old_rows(self, images: Images, fates: _Fates) -> None:
        """A row that is its own key is found by all that it was, and by nothing less."""
        olds = (images.codes == Code.UPDATE) | (images.codes == Code.DELETE)
        for place in np.flatnonzero(olds & ~images.has_before):
            fates.kill(images, int(place), _NO_OLD_ROW)
        prefix = "" if self._reader.deletes_are_rows else "before."
        for column in self._required:
            missing = olds & images.has_before & marks(images.before[column].is_null())
            for place in np.flatnonzero(missing):
                name = f"{prefix}{self._layout.columns.field(column).name}"
                fates.kill(images, int(place), f"{name} is NOT NULL, but null or missing")

    def _times(self, images: Images, fates: _Fates) -> pa.Array:
        """When each record's change was made; one that does not say so is none that could be put in order."""
        assert images.updated is not None
        times = _parsed_times(images.updated)
        changes = images.codes < Code.IGNORED
        for place in np.flatnonzero(changes & marks(times.is_null())):
            said = images.updated[place].as_py()
            words = "no updated" if said is None else f'updated is "{said}", which is no time'
            fates.kill(images, int(place), f"{words}: {_UPDATED_REMEDY}")
        places = np.zeros(len(fates.records), np.int64)
        places[images.positions] = np.arange(len(images.positions))
        return times.take(pa.array(places)) if len(times) else pa.nulls(len(places), _TIME)

    def _own_keys(self, images: Images) -> tuple[Marks, Marks]:
        """Where the row before has its whole key; and where an update gave it another one."""
        own = images.has_before.copy()
        if self._changes.whole:
            return own, own & (images.codes == Code.UPDATE)
        moved = np.zeros(len(own), bool)
        for column, old in zip(self._key_places, images.before, strict=False):
            if old.null_count:
                own &= marks(old.is_valid())
            moved |= _differ(images.after[column], old)
        return own, moved & own & (images.codes == Code.UPDATE)

    def _refuse_unavailable(self, images: Images, fates: _Fates) -> None:
        """Never a row with a mark in the place of a value."""
        upserts = (images.codes == Code.INSERT) | (images.codes == Code.UPDATE)
        for columns, schema, rows, path in (
            (images.after, self._layout.columns, upserts, "after"),
            (images.before, self._layout.old, upserts | (images.codes == Code.DELETE), "before"),
        ):
            for column, name in zip(columns, schema.names, strict=True):
                marked = unavailable(column)
                for place in np.flatnonzero(marked & rows) if marked is not None else ():
                    fates.kill(images, int(place), f"{path}.{name}: {_UNAVAILABLE}")

    def _verify_message_keys(self, images: Images, moved: Marks, fates: _Fates) -> None:
        """All changes of a row lie in one partition only if the message key is the row's."""
        records = fates.records
        if not records.keys or not self._changes.keys:
            return
        keys = (
            records.keys if len(images.positions) == len(records) else [records.keys[i] for i in images.positions]
        )
        said = self._message_keys.glance(keys)
        upserts = (images.codes == Code.INSERT) | (images.codes == Code.UPDATE)
        wrong, wrong_before = np.zeros(len(upserts), bool), np.zeros(len(upserts), bool)
        for column, old, key in zip(self._key_places, images.before, said, strict=False):
            if key.null_count < len(key):
                wrong |= _differ(images.after[column], key)
                wrong_before |= _differ(old, key)
        deletes = (images.codes == Code.DELETE) & images.has_before
        for place in np.flatnonzero((upserts & wrong & ~(moved & ~wrong_before)) | (deletes & wrong_before)):
            row = images.before if deletes[place] else [images.after[i] for i in self._key_places]
            pairs = zip(self._changes.keys, said, row, strict=False)
            words = ", ".join(
                f"{name} is {key[place].as_py()} in the message key, {own[place].as_py()} in the row"
                for name, key, own in pairs
                if key[place].is_valid
            )
            fates.kill(images, int(place), f"{words}: changes of one row may lie in several partitions")

    def _lay_out(
        self, images: Images, own_key: Marks, moved: Marks, absent: list[int], fates: _Fates, sheet: Sheet
    ) -> None:
        codes = images.codes
        rows = sheet.rows(images.after)
        upserts = np.flatnonzero((codes == Code.INSERT) | (codes == Code.UPDATE))
        sheet.put(images.positions[upserts], rows + upserts, codes[upserts], moved[upserts], upserts)
        olds = np.flatnonzero(moved & (codes == Code.UPDATE))
        deletes = np.flatnonzero((codes == Code.DELETE) & own_key)
        if len(olds) or len(deletes):
            rows = sheet.key_rows(images.before)
            sheet.put(images.positions[olds], rows + olds, Code.DELETE, False, olds)
            sheet.put(images.positions[deletes], rows + deletes, Code.DELETE, False, deletes)
        truncates = np.flatnonzero(codes == Code.TRUNCATE)
        if len(truncates):
            nothing = sheet.rows([pa.nulls(1, each) for each in self._layout.columns.types])
            sheet.put(images.positions[truncates], np.full(len(truncates), nothing), Code.TRUNCATE, False)
        self._lay_out_by_message_key(
            images, np.flatnonzero((codes == Code.DELETE) & ~own_key), absent, fates, sheet
        )
        sheet.befores = images.before, images.has_before

    def _lay_out_by_message_key(
        self, images: Images, places: Places, absent: list[int], fates: _Fates, sheet: Sheet
    ) -> None:
        """Deletes whose key stands beside the value, and nowhere in it."""
        positions, befores, texts = self._absent(absent, fates)
        for place in places.tolist():
            position = int(images.positions[place])
            value = fates.records.values[position]
            assert value is not None
            try:
                texts.append(self._reader.key(value, fates.message_key(position)))
            except ValueError as error:
                fates.kill(images, place, str(error))
                continue
            positions.append(position)
            befores.append(place)
        if not positions:
            return
        outcome = self._message_keys.read(texts)
        fates.errors |= {positions[i]: words for i, words in outcome.errors.items()}
        landed = [i for i in range(len(positions)) if i not in outcome.errors]
        rows = sheet.key_rows(list(outcome.landed.columns)) + np.arange(len(landed))
        sheet.put(np.array(positions)[landed], rows, Code.DELETE, False, np.array(befores)[landed])

    def _absent(self, absent: list[int], fates: _Fates) -> tuple[list[int], list[int], list[bytes | None]]:
        """What records without a value mean: deletes, with positions, no before images, and message keys."""
        match self._reader.null_is:
            case None:
                fates.errors |= dict.fromkeys(absent, "null value")
            case Code.DELETE:
                return list(absent), [NO_IMAGE] * len(absent), [fates.message_key(i) for i in absent]
            case _:
                fates.ignored += len(absent)
        return [], [], []

    def _decoded(
        self, records: Records, sheet: Sheet, fates: _Fates, times: pa.Array | None, weights: Places
    ) -> Decoded:
        fates.raise_first(self._plan.on_error == "fail")
        dead = None
        if fates.errors:
            at = sorted(fates.errors)
            dead = dead_letters(select(records, at), [fates.errors[i] for i in at], self._plan.ddl)
        laid = sheet.laid()
        columns = laid.columns
        if self._plan.metadata:
            columns += taken(metadata_columns(records), laid.positions)
        orders = offset_column(records).to_numpy()[laid.positions] * 2 + laid.seconds
        columns += [_LETTERS.take(pa.array(laid.codes)), pa.array(orders, pa.int64())]
        if times is not None:
            columns.append(times.take(pa.array(laid.positions)))
        if self._changes.before:
            columns.append(self._before(laid))
        if self._changes.whole:
            columns.append(pa.array(_SIGNS[laid.codes] * weights[laid.positions]))
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Decoded(rows, dead, fates.ignored, fates.unknown_ops)

    def _before(self, laid: Laid) -> pa.Array:
        """Null where no column beyond the key is given: many sources send a key, and nulls for all the rest."""
        kind = self._schema.field(BEFORE).type
        columns = {name: laid.before[self._layout.old.get_field_index(name)] for name in self._changes.before}
        are_given = {name: marks(column.is_valid()) for name, column in columns.items()}
        given = laid.has_before
        for name in columns.keys() & set(self._changes.keys):
            given = given & are_given[name]
        if telling := columns.keys() - set(self._changes.keys):
            given = given & np.logical_or.reduce([are_given[name] for name in telling])
        return pa.StructArray.from_arrays(list(columns.values()), fields=list(kind), mask=pa.array(~given))


_LETTERS = pa.array(LETTERS)
_SIGNS = np.array([1, 1, -1, 0])
"""of the letters: what each does to the number of copies of its row"""
_NO_OLD_ROW = (
    "it does not tell the row that goes, and without a key nothing else names it: in PostgreSQL set REPLICA "
    "IDENTITY FULL; where an operation stands beside the columns, send the old row with -U and the new one with +U"
)
_TIME = pa.decimal128(38, 10)
_UPDATED_REMEDY = "create the changefeed WITH updated, resolved; enriched needs enriched_properties = source too"
_UNKNOWN_REMEDY = (
    'correct the source or changes.op_column, or set changes.unknown_op = "dead-letter" to set such records aside, '
    'or "warn-insert" to take them for upserts'
)
_TRUNCATE_REMEDY = 'set changes.truncate = "apply" to empty the table too, or "ignore" to keep its rows'
_UNAVAILABLE = (
    "the source left the value out because it is large and unchanged (__debezium_unavailable_value): "
    "set REPLICA IDENTITY FULL on its table"
)


@dataclass(slots=True)
class _Fates:
    """What becomes of records that become no change."""

    records: Records
    errors: dict[int, str] = field(default_factory=dict)
    stops: dict[int, UndecodableRecord] = field(default_factory=dict)
    ignored: int = 0
    unknown_ops: int = 0

    def kill(self, images: Images, place: int, words: str) -> None:
        """Makes a dead letter; the first reason stands."""
        images.codes[place] = Code.DEAD
        self.errors.setdefault(int(images.positions[place]), words)

    def stop(self, images: Images, place: int, words: str, remedy: str) -> None:
        images.codes[place] = Code.DEAD
        position = int(images.positions[place])
        self.stops[position] = UndecodableRecord(f"{self.records.place(position)} {words}", remedy)

    def origin(self, images: Images, place: int) -> dict[str, object]:
        records, position = self.records, images.positions[place]
        return {"topic": records.topic, "partition": records.partition, "offset": records.offsets[position]}

    def message_key(self, position: int) -> bytes | None:
        return self.records.keys[position] if self.records.keys else None

    def raise_first(self, errors_too: bool) -> None:
        """Raises what stops the pipeline, at the first record that does."""
        if errors_too and self.errors:
            first = min(self.errors)
            self.stops.setdefault(first, undecodable(self.records, first, self.errors[first]))
        if self.stops:
            raise self.stops[min(self.stops)]


def _weights(images: Images, count: int) -> Places:
    """Of each record, how many copies of its row it is about."""
    weights = np.ones(count, np.int64)
    if images.weights is not None:
        weights[images.positions] = images.weights
    return weights


def _parsed_times(texts: pa.Array) -> pa.Array:
    """Null where a text is no time."""
    try:
        return pc.cast(texts, _TIME)
    except pa.ArrowInvalid:
        return pa.array([_parsed_time(text) for text in texts], _TIME)


def _parsed_time(text: pa.Scalar) -> Decimal | None:
    try:
        time: Decimal | None = pc.cast(text, _TIME).as_py()
    except pa.ArrowInvalid:
        return None
    return time


def _differ(one: pa.Array, other: pa.Array) -> Marks:
    """Where both have a value, and not the same one."""
    if isinstance(one, pa.ExtensionArray):
        one, other = one.storage, other.storage
    return marks(pc.fill_null(pc.not_equal(one, other), False))

"""The schema a user declares: Spark's DDL text in, an Iceberg schema out, and back to text for messages.

    order_id BIGINT NOT NULL, amount DECIMAL(10,2), address STRUCT<city: STRING, zip: INT> COMMENT 'home'

It is parsed here rather than by Spark so that a pipeline file can be checked without starting a JVM, and so
that a mistake is pointed at.

    columns := column ("," column)*
    column  := name [":"] type ["NOT" "NULL"] ["COMMENT" string]
    type    := name | name "(" number ["," number] ")"
             | "ARRAY" "<" type ">" | "MAP" "<" type "," type ">" | "STRUCT" "<" columns ">"
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import NoReturn

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.errors import ConfigError

_PLAIN_TYPES: dict[str, IcebergType] = {
    "BOOLEAN": BooleanType(),
    "TINYINT": IntegerType(),
    "SMALLINT": IntegerType(),
    "INT": IntegerType(),
    "INTEGER": IntegerType(),
    "BIGINT": LongType(),
    "LONG": LongType(),
    "FLOAT": FloatType(),
    "REAL": FloatType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestamptzType(),
    "TIMESTAMP_LTZ": TimestamptzType(),
    "TIMESTAMP_NTZ": TimestampType(),
    # Iceberg's own names: Spark has none for nanoseconds.
    "TIMESTAMP_NS": TimestampNanoType(),
    "TIMESTAMPTZ_NS": TimestamptzNanoType(),
    "UUID": UUIDType(),
}
_DECIMAL_NAMES = frozenset({"DECIMAL", "NUMERIC", "DEC"})
_TEXT_NAMES = frozenset({"VARCHAR", "CHAR"})
_NESTED_NAMES = frozenset({"ARRAY", "MAP", "STRUCT"})
_TYPE_NAMES = sorted(_PLAIN_TYPES.keys() | _DECIMAL_NAMES | _TEXT_NAMES | _NESTED_NAMES | {"FIXED", "TIME"})
_TIME_DIGITS = 6
_FIXED_MAX = 2**20
_DEPTH_MAX = 50
_DECIMAL_DIGITS_MAX = 38
_DECIMAL_DEFAULT = (10, 0)

_RENDERED: dict[type[IcebergType], str] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INT",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    StringType: "STRING",
    BinaryType: "BINARY",
    DateType: "DATE",
    TimestamptzType: "TIMESTAMP",
    TimestampType: "TIMESTAMP_NTZ",
    TimestampNanoType: "TIMESTAMP_NS",
    TimestamptzNanoType: "TIMESTAMPTZ_NS",
    TimeType: "TIME",
    UUIDType: "UUID",
}

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<quoted>`(?:[^`]|``)+`)
      | (?P<string>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
      | (?P<word>\w+)
      | (?P<mark>[(),<>:])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)


def parse_schema(text: str) -> Schema:
    """The Iceberg schema of a DDL text, its field ids counted from 1, top-level columns first."""
    fields = _Parser(text).columns()
    try:
        schema = assign_fresh_schema_ids(Schema(*fields))
        schema.column_names  # noqa: B018  # pyiceberg looks for names that mean two columns only when asked
    except ValueError as error:
        raise ConfigError(f"schema: {error}", "rename one of the columns; a dot leads into a struct") from error
    return schema


def render_schema(schema: Schema) -> str:
    """The DDL text of a schema, such that parsing it gives the schema back."""
    return ", ".join(_render_field(field, " ") for field in schema.fields)


def format_version_needed(schema: Schema) -> int:
    """The lowest Iceberg format version whose tables may hold these types."""
    return max(2, *(kind.minimum_format_version() for kind in _primitives(schema.as_struct())))


def _primitives(kind: IcebergType) -> Iterator[PrimitiveType]:
    match kind:
        case StructType():
            for field in kind.fields:
                yield from _primitives(field.field_type)
        case ListType():
            yield from _primitives(kind.element_type)
        case MapType():
            yield from _primitives(kind.key_type)
            yield from _primitives(kind.value_type)
        case PrimitiveType():
            yield kind


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int

    def is_word(self, word: str) -> bool:
        return self.kind == "word" and self.text.upper() == word

    def is_mark(self, mark: str) -> bool:
        return self.kind == "mark" and self.text == mark

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else self.text


class _Parser:
    """Recursive descent over the grammar above, one method per rule."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0
        # Provisional ids only have to differ; assign_fresh_schema_ids gives the real ones.
        self._ids: Iterator[int] = count(1)
        self._depth = 0

    def columns(self) -> list[NestedField]:
        fields = self._fields()
        if self._peek().kind != "end":
            self._refuse(self._peek(), f'expected "," or the end of the text, got {self._peek()}')
        return fields

    def _fields(self) -> list[NestedField]:
        # Spark resolves names without regard to case, so two that differ only in case are one.
        fields: dict[str, NestedField] = {}
        while True:
            token = self._peek()
            field = self._field()
            if field.name.lower() in fields:
                self._refuse(token, f"column {field.name} is declared twice", "rename one (case is ignored)")
            fields[field.name.lower()] = field
            if not self._accept_mark(","):
                return list(fields.values())

    def _field(self) -> NestedField:
        name = self._name()
        self._accept_mark(":")
        kind = self._type(name)
        required = self._not_null()
        return NestedField(next(self._ids), name, kind, required=required, doc=self._comment())

    def _name(self) -> str:
        token = self._advance()
        if token.kind == "quoted":
            return token.text[1:-1].replace("``", "`")
        if token.kind != "word":
            self._refuse(token, f"expected a column name, got {token}")
        return token.text

    def _type(self, owner: str) -> IcebergType:
        token = self._advance()
        name = token.text.upper()
        if token.kind != "word":
            self._refuse(token, f"expected the type of {owner}, got {token}")
        if name in _PLAIN_TYPES:
            return _PLAIN_TYPES[name]
        if name in _DECIMAL_NAMES:
            return self._decimal(token, owner)
        if name in _TEXT_NAMES:
            self._numbers(at_most=1)
            return StringType()
        if name in _NESTED_NAMES:
            return self._nested(name, owner)
        if name == "FIXED":
            return self._fixed(token, owner)
        if name == "TIME":
            return self._time(token, owner)
        if name == "VARIANT":
            self._refuse(
                token,
                f"VARIANT cannot be written (column {owner})",
                "declare a STRING column and name it in decode.catch_all: it keeps what is not declared as JSON",
            )
        self._refuse(token, f"{token} is not a type (column {owner})", _suggestion(name))

    def _nested(self, name: str, owner: str) -> IcebergType:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._refuse(self._peek(), f"types are nested more than {_DEPTH_MAX} levels deep")
        self._expect_mark("<", f"after {name}")
        kind: IcebergType
        if name == "ARRAY":
            kind = ListType(next(self._ids), self._type(f"the elements of {owner}"), element_required=False)
        elif name == "MAP":
            key = self._type(f"the keys of {owner}")
            self._expect_mark(",", "between the key and value types of MAP")
            value = self._type(f"the values of {owner}")
            kind = MapType(next(self._ids), key, next(self._ids), value, value_required=False)
        else:
            kind = StructType(*self._fields())
        self._expect_mark(">", f"to close {name}")
        self._depth -= 1
        return kind

    def _fixed(self, name: _Token, owner: str) -> FixedType:
        length = self._numbers(at_most=1)
        if not length or not 1 <= length[0] <= _FIXED_MAX:
            self._refuse(name, f"FIXED needs a length of 1 to {_FIXED_MAX:,} (column {owner})", "such as FIXED(16)")
        return FixedType(length[0])

    def _time(self, name: _Token, owner: str) -> TimeType:
        digits = self._numbers(at_most=1)
        if digits and digits[0] != _TIME_DIGITS:
            self._refuse(
                name,
                f"TIME({digits[0]}) is not possible (column {owner})",
                f"a time has {_TIME_DIGITS} digits behind the second: TIME or TIME({_TIME_DIGITS})",
            )
        return TimeType()

    def _decimal(self, name: _Token, owner: str) -> DecimalType:
        digits = self._numbers(at_most=2)
        precision, scale = (*digits, *_DECIMAL_DEFAULT[len(digits) :])
        if not 1 <= precision <= _DECIMAL_DIGITS_MAX or scale > precision:
            self._refuse(
                name,
                f"{name}({precision},{scale}) is not possible (column {owner})",
                f"1 to {_DECIMAL_DIGITS_MAX} digits, no more of them behind the point than in all",
            )
        return DecimalType(precision, scale)

    def _numbers(self, at_most: int) -> list[int]:
        """The numbers in brackets behind a type name; none when there are no brackets."""
        numbers: list[int] = []
        if not self._accept_mark("("):
            return numbers
        while not numbers or (len(numbers) < at_most and self._accept_mark(",")):
            token = self._advance()
            if not (token.kind == "word" and token.text.isdecimal()):
                self._refuse(token, f"expected a number, got {token}")
            numbers.append(int(token.text))
        self._expect_mark(")", "after the number")
        return numbers

    def _not_null(self) -> bool:
        if not self._peek().is_word("NOT"):
            return False
        self._advance()
        token = self._advance()
        if not token.is_word("NULL"):
            self._refuse(token, f"expected NULL after NOT, got {token}")
        return True

    def _comment(self) -> str | None:
        if not self._peek().is_word("COMMENT"):
            return None
        self._advance()
        token = self._advance()
        if token.kind != "string":
            self._refuse(token, f"expected a quoted text after COMMENT, got {token}")
        return _unquoted(token.text)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _advance(self) -> _Token:
        token = self._tokens[self._next]
        if token.kind == "unknown":
            self._refuse(token, f"cannot read {token}")
        if token.kind != "end":
            self._next += 1
        return token

    def _accept_mark(self, mark: str) -> bool:
        found = self._peek().is_mark(mark)
        self._next += found
        return found

    def _expect_mark(self, mark: str, where: str) -> None:
        if not self._accept_mark(mark):
            self._refuse(self._peek(), f'expected "{mark}" {where}, got {self._peek()}')

    def _refuse(self, token: _Token, problem: str, remedy: str = "") -> NoReturn:
        raise ConfigError(f"schema: {problem}\n{_pointer(self._text, token.position)}", remedy)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while match := _TOKEN.match(text, position):
        kind = match.lastgroup or "end"
        yield _Token(kind, match[kind], match.start(kind))
        if kind == "end":
            return
        position = match.end()
    start = len(text) - len(text[position:].lstrip())
    yield _Token("unknown", text[start], start)


def _unquoted(text: str) -> str:
    quote = text[0]
    return re.sub(r"\\(.)", r"\1", text[1:-1].replace(quote * 2, quote), flags=re.DOTALL)


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, _TYPE_NAMES, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"known types: {', '.join(_TYPE_NAMES)}"


def _pointer(text: str, position: int) -> str:
    """The line that holds the position, and a caret under it."""
    start = text.rfind("\n", 0, position) + 1
    line = text[start:].partition("\n")[0].expandtabs(1)
    where = f"line {text.count(chr(10), 0, position) + 1}, column {position - start + 1}"
    return f"  {line}\n  {' ' * (position - start)}^ {where}"


def _render_field(field: NestedField, separator: str) -> str:
    parts = [_render_name(field.name), separator, _render_type(field.field_type)]
    if field.required:
        parts.append(" NOT NULL")
    if field.doc is not None:
        text = field.doc.replace("\\", "\\\\").replace("'", "\\'")
        parts.append(f" COMMENT '{text}'")
    return "".join(parts)


def _render_name(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def _render_type(kind: IcebergType) -> str:
    match kind:
        case FixedType():
            return f"FIXED({len(kind)})"
        case DecimalType():
            return f"DECIMAL({kind.precision},{kind.scale})"
        case ListType():
            return f"ARRAY<{_render_type(kind.element_type)}>"
        case MapType():
            return f"MAP<{_render_type(kind.key_type)}, {_render_type(kind.value_type)}>"
        case StructType():
            return f"STRUCT<{', '.join(_render_field(field, ': ') for field in kind.fields)}>"
        case _:
            # A table made elsewhere may hold types that the DDL has no word for: show Iceberg's own.
            return _RENDERED.get(type(kind), str(kind).upper())

"""The error tree: complete in its drawing, whole after a trip from a worker."""

from __future__ import annotations

import base64
import os
import pickle
import re
from pathlib import Path

import pytest

from frazil import errors
from frazil.engine.carry import Carried, carrying, unpack
from frazil.errors import (
    CommitConflict,
    FrazilError,
    InvalidState,
    SchemaMismatch,
    TerminalError,
    TransientError,
    UndecodableRecord,
    UnsupportedCatalog,
    WorkerFailed,
)

CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FrazilError)]
KINDS = {
    "Config",
    "CommitConflict",
    "Connection",
    "InvalidState",
    "Io",
    "MaxRetriesExceeded",
    "SchemaMismatch",
    "Transaction",
    "UnsupportedCatalog",
}
_LINE = re.compile(r"^ {4}((?:[│ ] {3})*(?:[├└]── )?)(\w+)(?: +kind (\w+))?", re.MULTILINE)


def drawn() -> dict[str, tuple[str | None, str | None]]:
    """Every class of the docstring's tree, with its parent and its kind there."""
    tree: dict[str, tuple[str | None, str | None]] = {}
    path: list[str] = []
    for indent, name, kind in _LINE.findall(errors.__doc__ or ""):
        depth = len(indent) // 4
        path[depth:] = [name]
        tree[name] = (path[depth - 1] if depth else None, kind or None)
    return tree


def test_the_drawing_names_every_class_under_its_parent() -> None:
    actual = {kind.__name__: kind.__mro__[1].__name__ for kind in CLASSES}
    assert {name: parent or "Exception" for name, (parent, _) in drawn().items()} == actual


@pytest.mark.parametrize(
    "kind", [kind for kind in CLASSES if kind.__subclasses__() == []], ids=lambda k: k.__name__
)
def test_the_drawing_gives_every_leaf_its_kind(kind: type[FrazilError]) -> None:
    """SINK-10, CLI-03."""
    assert drawn()[kind.__name__][1] == kind.kind
    assert kind.kind in KINDS


def test_every_kind_is_used() -> None:
    """SINK-10."""
    assert {kind.kind for kind in CLASSES} - {"Error"} == KINDS


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_is_transient_or_terminal_and_not_both(kind: type[FrazilError]) -> None:
    families = [issubclass(kind, TransientError), issubclass(kind, TerminalError)]
    assert kind is FrazilError or sum(families) == 1


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_survives_pickling_with_message_and_remedy(kind: type[FrazilError], protocol: int) -> None:
    error = kind("what happened", "what to do")
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is kind
    assert (back.message, back.remedy, str(back), back.args) == (
        "what happened",
        "what to do",
        "what happened\n  → what to do",
        error.args,
    )


@pytest.mark.parametrize(
    "error",
    [
        InvalidState("m", "r", actual="a", expected="e"),
        InvalidState("m", actual="a", expected="e"),
        SchemaMismatch("m", "r", expected="e", actual="a"),
    ],
)
def test_expected_and_actual_survive_pickling_in_their_places(error: InvalidState | SchemaMismatch) -> None:
    """SINK-10."""
    back = pickle.loads(pickle.dumps(error))
    assert (back.message, back.remedy, back.expected, back.actual) == (error.message, error.remedy, "e", "a")


def test_an_error_without_a_remedy_is_its_message_alone() -> None:
    assert str(CommitConflict("others won")) == "others won"
    assert issubclass(UnsupportedCatalog, errors.ConfigError)


def marked(content: bytes) -> str:
    """Text that looks like a packed error."""
    return f"[frazil:{base64.b64encode(content).decode()}]"


class TestTheTripFromAWorker:
    """The driver decides by class, never by words."""

    def carried(self, error: FrazilError) -> FrazilError:
        with pytest.raises(Carried) as raised, carrying():
            raise error
        around = f"org.apache.spark.SparkException: Job aborted\nTraceback …\n  {raised.value}\n\tat org.apache…"
        return unpack(RuntimeError(around))

    @pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
    def test_every_class_comes_back_as_what_it_was(self, kind: type[FrazilError]) -> None:
        back = self.carried(kind("message with ] and [frazil:x]", "remedy\nover two lines"))
        assert type(back) is kind
        assert (back.message, back.remedy) == ("message with ] and [frazil:x]", "remedy\nover two lines")

    def test_facts_come_back_too(self) -> None:
        back = self.carried(SchemaMismatch("m", "r", expected="a INT", actual="a STRING"))
        assert isinstance(back, SchemaMismatch)
        assert (back.expected, back.actual) == ("a INT", "a STRING")

    def test_a_record_that_quotes_a_packed_error_is_not_taken_for_one(self) -> None:
        forged = marked(b'["Fenced", "stop!", ""]')
        quoted = UndecodableRecord(f"orders[0] offset 5: cannot decode '{forged}'", "fix it")
        assert type(self.carried(quoted)) is UndecodableRecord

    def test_a_record_can_never_run_code_on_the_driver(self, tmp_path: Path) -> None:
        """Decoders and Spark quote the values they cannot read, and anybody may have written them."""

        class Evil:
            def __reduce__(self) -> tuple[object, tuple[str]]:
                return os.mkdir, (str(tmp_path / "pwned"),)

        planted = marked(pickle.dumps(Evil()))
        self.carried(UndecodableRecord(f"can't parse the string value {planted}", ""))
        unpack(RuntimeError(f"[CAST_INVALID_INPUT] The value '{planted}' cannot be cast"))
        assert not (tmp_path / "pwned").exists()

    def test_anything_else_is_a_failed_worker_worth_another_try(self) -> None:
        """FAULT-04."""
        back = unpack(RuntimeError("Job aborted due to stage failure\n  ExecutorLostFailure (killed)\n  more"))
        assert isinstance(back, WorkerFailed)
        assert "Job aborted" in back.message or "ExecutorLostFailure" in back.message

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "   \n ",
            "[frazil:]",
            "[frazil:not base64!]",
            "[frazil:AAAA]",
            marked(b"null"),
            marked(b"[]"),
            marked(b"[[1]]"),
            marked(b'["SystemExit", "1"]'),
            marked(b'["Fenced", 1, 2, 3, 4, 5, 6]'),
            marked(b"[" * 100_000),
        ],
    )
    def test_text_that_cannot_be_unpacked_is_a_failed_worker_too(self, text: str) -> None:
        assert isinstance(unpack(RuntimeError(text)), WorkerFailed)

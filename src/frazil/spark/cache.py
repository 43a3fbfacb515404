"""The folder for what frazil fetches or builds once per machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$FRAZIL_CACHE`, else `$XDG_CACHE_HOME/frazil`, else `~/.cache/frazil`; it need not exist yet."""
    if chosen := os.environ.get("FRAZIL_CACHE"):
        return Path(chosen).expanduser().absolute()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser().absolute() / "frazil"
    return Path.home() / ".cache" / "frazil"

"""Secrets: taken from the environment when a pipeline file is read, and never shown again."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from frazil.errors import ConfigError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SECRET_PATTERN = (
    r"password|passphrase|secret|token|credential|authorization|jaas|oauthbearer[.]config|connection-string|\bsas\b"
    r"|(access|account|private|api)[-_.]?key|[-_.]key$|[.]pem$"
)
"""Names of settings whose values must not be shown; without regard to case."""
_SECRET_KEY = re.compile(SECRET_PATTERN, re.I)
_PUBLIC_KEY = re.compile(r"location$|uri$|url$|endpoint", re.I)
MASK = "••••"
_EVERYDAY = {"true", "false", "none"}
"""Values of settings that merely sound secret, such as token-refresh-enabled; masking them would maim all text."""
_known: set[str] = set()


def resolve(value: object, path: str = "", environ: Mapping[str, str] = os.environ) -> object:
    """Replaces every `${NAME}` by the environment's value and remembers what must not be shown."""
    if isinstance(value, dict):
        return {k: resolve(v, f"{path}.{k}" if path else str(k), environ) for k, v in value.items()}
    if isinstance(value, list):
        return [resolve(v, path, environ) for v in value]
    if not isinstance(value, str):
        return value

    def look_up(match: re.Match[str]) -> str:
        name = match[1]
        if name not in environ:
            raise ConfigError(
                f"{path}: the environment variable {name} is not set", f"export {name} before running frazil"
            )
        _known.add(environ[name])
        return environ[name]

    resolved = _REFERENCE.sub(look_up, value)
    if is_secret(path) and resolved:
        _known.add(resolved)
    return resolved


def is_secret(key: str) -> bool:
    """Whether a setting of this name holds something that must not be printed."""
    return bool(_SECRET_KEY.search(key)) and not _PUBLIC_KEY.search(key)


def mask(text: str) -> str:
    """The text without any secret value that was read so far."""
    for secret in sorted(_known, key=len, reverse=True):
        if len(secret) > 2 and secret.lower() not in _EVERYDAY:
            text = text.replace(secret, MASK)
    return text


def masked(value: object) -> object:
    """The value with every text in it masked, however deep."""
    match value:
        case str():
            return mask(value)
        case dict():
            return {key: masked(inner) for key, inner in value.items()}
        case list() | tuple():
            return [masked(inner) for inner in value]
        case BaseException():
            return mask(str(value))
        case _:
            return value

"""SQL that stands in files of its own: `queries/<package>.sql`, each statement behind a line `-- name: …`."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

_HEAD: Final = re.compile(r"^-- name: ([a-z0-9_]+)$\n", re.MULTILINE)


def statement_of(package: str, name: str) -> str:
    """The statement; what it takes and returns, the comment behind its name says. Without the lines that
    explain it: pg_stat_activity shows an operator the first 1,024 bytes of what runs."""
    return statements_of(package)[name]


@cache
def statements_of(package: str) -> dict[str, str]:
    """All statements of a package by their names. Raises ValueError where a name stands there twice."""
    text = (files("gateway.postgres") / "queries" / f"{package}.sql").read_text(encoding="utf-8")
    _, *parts = _HEAD.split(text)
    found = dict(zip(parts[::2], map(_without_comments, parts[1::2]), strict=True))
    if len(found) * 2 != len(parts):
        raise ValueError(f"queries/{package}.sql names a statement twice")
    return found


def _without_comments(text: str) -> str:
    return "\n".join([line for line in text.strip().splitlines() if not line.startswith("--")])

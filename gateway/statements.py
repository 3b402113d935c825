"""SQL that stands in files of its own: `sql/<name>.sql` in the package that sends it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement_of(package: str, name: str) -> str:
    """The statement; what it takes and returns, the head of its file says. Without the lines that explain it:
    pg_stat_activity shows an operator the first 1,024 bytes of what runs."""
    text = (files(package) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join([line for line in text.splitlines() if not line.startswith("--")])

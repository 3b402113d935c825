"""deploy/env.example and the table of settings in docs/operations.md, from the settings in gateway/config.py.

`.venv/bin/python deploy/settings.py` brings both up to date; a test holds them to that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.config import SETTINGS, Setting
from gateway.setting_rows import KIB, MIB

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "deploy/env.example"
PAGE = ROOT / "docs/operations.md"

_PLACE = re.compile(r"(<!-- settings: made by .*? -->\n).*?(<!-- end -->)", re.DOTALL)
_TENANTS = """\
# Secrets that specs name are no settings: each is one tenant's (docs/webhooks.md, "Secrets").
#   SLUICE_SECRET_MAIN__STRIPE is `env:SLUICE_SECRET_MAIN__STRIPE` in the specs of the tenant main.

# The folder of the files that specs name: `file:stripe` is main/stripe in it for the tenant main.
#   a path; unset: no files
#SLUICE_SECRETS_DIR=

# The tenant of names without one: SLUICE_SECRET_STRIPE, and files in that folder itself.
#   a tenant's name; unset: main
#SLUICE_SECRETS_TENANT=main
"""
_HEAD = """\
# Every setting of `sluice serve`, with its default and its reason. Made by deploy/settings.py.
#
# For an env_file, systemd's EnvironmentFile, or `set -a; . ./sluice.env`. An empty value is the same as none;
# an unknown name is a fault; all faults are reported at once. A secret may stand in a file instead.
"""


def example() -> str:
    """The whole of env.example. It does not start a gateway: what must be set is left empty."""
    return "\n".join((_HEAD, *(_entry(row) for row in SETTINGS), _TENANTS))


def updated(page: str) -> str:
    """The page with its table as it should be."""
    return _PLACE.sub(lambda place: place[1] + "".join(_table()) + place[2], page)


def _entry(row: Setting) -> str:
    lines = [f"# {row.reason}", f"#   {row.kind.accepts}"]
    if row.secret:
        lines.append(f"#   or in a file: {row.name}_FILE=/run/secrets/{row.field}")
    lines.append(f"{'' if row.required else '#'}{row.name}={text_of(row.default)}")
    return "\n".join(lines) + "\n"


def _table() -> Iterator[str]:
    yield "| setting | default | accepts | why |\n| --- | --- | --- | --- |\n"
    for row in SETTINGS:
        name = f"`{row.name}`" + (" or `…_FILE`" if row.secret else "")
        yield f"| {name} | {_default(row)} | {row.kind.accepts} | {row.reason} |\n"


def _default(row: Setting) -> str:
    if row.default is None:
        return "required" if row.required else "unset"
    text = f"`{text_of(row.default)}`"
    if "bytes" in row.field:
        size = row.default
        return f"{text} ({size // MIB} MiB)" if size >= MIB else f"{text} ({size // KIB} KiB)"
    return text


def text_of(default: Any) -> str:
    """A default as it would be written in the environment."""
    match default:
        case None:
            return ""
        case bool():
            return "on" if default else "off"
        case float():
            return f"{default:g}"
        case _:
            return str(default)


if __name__ == "__main__":
    EXAMPLE.write_text(example())
    PAGE.write_text(updated(PAGE.read_text()))

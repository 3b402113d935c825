"""Where the secrets are that specs name: variables of the environment and files, each of one tenant.

The variable `SLUICE_SECRET_MAIN__STRIPE` and the file `main/stripe` in the folder `SLUICE_SECRETS_DIR` are
those of the tenant `main`. What names no tenant is that of the tenant `SLUICE_SECRETS_TENANT`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from spec.webhooks.secrets import ENV_PREFIX, FILE

FOLDER: Final = "SLUICE_SECRETS_DIR"
OWNER: Final = "SLUICE_SECRETS_TENANT"
OWNER_DEFAULT: Final = "main"
SECRET_BYTES_MAX: Final = 64 * 1024
_OWN_FILE = re.compile("SLUICE_[A-Z0-9_]+_FILE")

SecretsOf = Callable[[str], Mapping[str, str]]
"""By a tenant's name, what its specs may name. As `Secrets.of`."""


def prefix_of(tenant: str) -> str:
    """How the names of a tenant's variables begin: in upper case, `-` as `_0`, and `_` as `_1` unless a
    letter follows it. No two tenants have one prefix, and none begins with another's."""
    spelled = re.sub("-|_(?![a-z])", lambda found: "_0" if found[0] == "-" else "_1", tenant)
    return f"{ENV_PREFIX}{spelled.upper()}__"


class Secrets:
    """Those of all tenants, in an environment and the folder that it names."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def of(self, tenant: str) -> Mapping[str, str]:
        """Those of the tenant of this name."""
        return _Own(self._environ, tenant)


class _Own(Mapping[str, str]):
    """An environment in which `file:NAME` is the text of that file, without white space at its ends. What
    can't be read is not there, and what is another tenant's is never looked for. Read whenever a spec is
    parsed: a new text counts from the next start, or the deployment of another document."""

    def __init__(self, environ: Mapping[str, str], tenant: str) -> None:
        self._environ = environ
        self._tenant = tenant
        self._prefix = prefix_of(tenant)
        self._has_unnamed = tenant == (environ.get(OWNER) or OWNER_DEFAULT)

    def __getitem__(self, name: str) -> str:
        if name.startswith(FILE):
            return self._file(name)
        if not self._is_own(name):
            raise KeyError(name)
        return self._environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self._environ if self._is_own(name)])

    def __len__(self) -> int:
        return len([*iter(self)])

    def _is_own(self, name: str) -> bool:
        if name.startswith(self._prefix):
            return True
        return self._has_unnamed and name.startswith(ENV_PREFIX) and "__" not in name.removeprefix(ENV_PREFIX)

    def _file(self, name: str) -> str:
        for folder in self._folders():
            try:
                with (folder / name.removeprefix(FILE)).open("rb") as file:
                    return file.read(SECRET_BYTES_MAX).decode().strip()
            except (OSError, UnicodeDecodeError):
                continue
        raise KeyError(name)

    def _folders(self) -> Iterator[Path]:
        told = self._environ.get(FOLDER)
        if not told:
            return
        yield Path(told) / self._tenant
        if self._has_unnamed and not self._holds_settings(Path(told)):
            yield Path(told)

    def _holds_settings(self, folder: Path) -> bool:
        """Whether the gateway has a secret of its own there, as the URL of its database: then nothing in the
        folder itself is a tenant's."""
        own = [text for name, text in self._environ.items() if text and _OWN_FILE.fullmatch(name)]
        return any(Path(text).resolve().parent == folder.resolve() for text in own)

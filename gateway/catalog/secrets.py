"""Where the secrets are that specs name: variables of the environment, and files of one folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

FOLDER = "SLUICE_SECRETS_DIR"
SECRET_BYTES_MAX = 64 * 1024
_FILE = "file:"


class Secrets(Mapping[str, str]):
    """An environment in which `file:NAME` is the text of that file, without white space at its ends. What
    can't be read is not there. Read whenever a spec is parsed: a new text counts from the next start, or
    the deployment of another document."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __getitem__(self, name: str) -> str:
        if not name.startswith(_FILE):
            return self._environ[name]
        folder = self._environ.get(FOLDER)
        if not folder:
            raise KeyError(name)
        try:
            with (Path(folder) / name.removeprefix(_FILE)).open("rb") as file:
                return file.read(SECRET_BYTES_MAX).decode().strip()
        except (OSError, UnicodeDecodeError) as fault:
            raise KeyError(name) from fault

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)

"""Where a follower keeps how far it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class SavedPosition(Protocol):
    """A place to store a position: a file, or a row next to the follower's results."""

    def load(self) -> str | None:
        """None if no position was saved yet."""

    def save(self, position: str) -> None:
        """Returns when the position is stored."""


class PositionFile:
    """One follower's position in a file of its own, replaced atomically, on disk when `save` returns."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def load(self) -> str | None:
        try:
            return self._path.read_text().strip() or None
        except FileNotFoundError:
            return None

    def save(self, position: str) -> None:
        beside = self._path.with_name(self._path.name + ".new")
        with beside.open("w") as file:
            file.write(position + "\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)


class Keeper:
    """Saves a position after the events before it were processed, at most every `every_s`, and at the end."""

    def __init__(self, saved: SavedPosition | None, every_s: float, clock: Callable[[], float]) -> None:
        self._saved = saved
        self._every_s = every_s
        self._clock = clock
        self._at = clock()
        self._unsaved: str | None = None
        self.fault: OSError | None = None
        """Why the last position could not be saved: no fault of the network."""

    def processed(self, position: str) -> None:
        if self._saved is None:
            return
        self._unsaved = position
        if self._clock() - self._at >= self._every_s:
            self.close()

    def close(self) -> None:
        if self._saved is not None and self._unsaved is not None:
            try:
                self._saved.save(self._unsaved)
            except OSError as fault:
                self.fault = fault
                raise
            self._unsaved, self._at = None, self._clock()

"""The status of followers: the serving build, the one under way, and their progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gateway.follow.model import Build
from gateway.follow.reading import Reading
from gateway.relay.position import START, Place, encode, encode_one

LIST_PREFIX: Final = "list:"
"""Before an aggregate type, the name of its list among projections."""

_STATES: Final = {"serving": "live", "building": "building", "off": "dropped"}


@dataclass(frozen=True, slots=True)
class Standing:
    """`behind` counts events of the tenant; `rate` is of a build, in events a second."""

    build: Build
    behind: int

    @property
    def done(self) -> float:
        """Of all that is committed, from 0 to 1; counted in places of the partition."""
        seq = self.build.place.seq
        return 1.0 if not self.behind else seq / (seq + self.behind)

    @property
    def figures(self) -> dict[str, Any]:
        build = self.build
        figures: dict[str, Any] = {
            "position": position_text(build.p, build.place),
            "behind": self.behind,
            "rows": build.rows,
            "does_not_fit": build.misfits,
        }
        if build.state == "building":
            figures["rate"] = round(build.rate, 1)
            figures["eta_s"] = round(self.behind / build.rate, 1) if build.rate else None
        return figures


@dataclass(frozen=True, slots=True)
class Stands:
    """A list or projection. `shown` is what serves, else what is built first, else what was dropped."""

    kind: str
    name: str
    shown: Standing
    beside: Standing | None

    @property
    def serves(self) -> bool:
        return self.shown.build.state == "serving"

    @property
    def state(self) -> str:
        build = self.shown.build
        return "paused" if build.paused else _STATES[build.state]

    @property
    def document(self) -> dict[str, Any]:
        """As it is shown."""
        return {
            "name": self.name,
            "state": self.state,
            **self.shown.figures,
            "misfits": msgspec.json.decode(self.shown.build.last_misfits),
            "build": None if self.beside is None else self.beside.figures,
        }


async def standings(reading: Reading, builds: Sequence[Build]) -> list[Stands]:
    """Of these builds, which are all of their names'. Raises PostgresTrouble."""
    of: dict[tuple[str, str], list[Build]] = {}
    for build in builds:
        of.setdefault((build.kind, build.name), []).append(build)
    return [await _stands(reading, kind, name, each) for (kind, name), each in of.items()]


async def _stands(reading: Reading, kind: str, name: str, builds: Sequence[Build]) -> Stands:
    serving = next((each for each in builds if each.state == "serving"), None)
    building = next((each for each in reversed(builds) if each.state == "building"), None)
    shown = serving or building or builds[-1]
    beside = None if building is None else Standing(building, await reading.behind(building))
    return Stands(kind, name, Standing(shown, await reading.behind(shown)), beside)


def position_text(p: int, place: Place) -> str:
    """Where a build stands, as a position of the feed."""
    return encode_one(p, place) if place.seq else encode(START)

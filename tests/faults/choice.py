"""Which faults a run has, where none are named; importing this enters every fault into INJECTIONS."""

from __future__ import annotations

from tests.faults import fail_over, patroni, refusals, releases, slots, slow_postgres, stopped
from tests.faults.injections import INJECTIONS
from tests.faults.patroni_nodes import PATRONI

MODULES = (fail_over, patroni, refusals, releases, slots, slow_postgres, stopped)


def usual(*, spread: bool, standby: str, mounts: bool, two_releases: bool = False) -> tuple[str, ...]:
    """`spread`: over a Redis Cluster. `standby`: of Postgres; beside faults of the pair, those that leave
    Postgres untouched. `mounts`: whether this process has some of its own. `two_releases`: there are gateways
    of an earlier one too."""
    kinds = ("", releases.OF) if two_releases else ("",)
    if spread:
        return _of(*kinds, slots.NODES)
    if standby:
        its_own = patroni.FAULTS if standby == PATRONI else fail_over.OF[standby]
        all_of = _of(*kinds, "pair")
        beside = (name for name in all_of if not INJECTIONS[name].touches & {"postgres", "network"})
        return (*its_own * 2, *beside)
    return _of(*kinds, "pair", *((slow_postgres.DISK,) if mounts else ()))


def _of(*kinds: str) -> tuple[str, ...]:
    return tuple(name for name, each in INJECTIONS.items() if not each.beyond and each.of in kinds)

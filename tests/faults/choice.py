"""Which faults a run has, where nobody names them; importing this enters every fault into INJECTIONS."""

from __future__ import annotations

from tests.faults import fail_over, refusals, slots, slow_postgres
from tests.faults.injections import INJECTIONS

MODULES = (fail_over, refusals, slots, slow_postgres)


def usual(*, spread: bool, standby: str, mounts: bool) -> tuple[str, ...]:
    """`spread`: over a Redis Cluster. `standby`: of Postgres; beside faults of the pair, those that leave
    Postgres alone. `mounts`: whether this process has some of its own."""
    if spread:
        return _of("", slots.NODES)
    if standby:
        beside = (name for name in _of("", "pair") if not INJECTIONS[name].touches & {"postgres", "network"})
        return (*fail_over.OF[standby] * 2, *beside)
    return _of("", "pair", *((slow_postgres.DISK,) if mounts else ()))


def _of(*kinds: str) -> tuple[str, ...]:
    return tuple(name for name, each in INJECTIONS.items() if not each.beyond and each.of in kinds)

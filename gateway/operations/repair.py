"""`sluice repair`: commits again, from Redis' journal, what Postgres has lost.

Owns: how much of the journal is proven to be what was committed. Nothing is written that the chain does not
lead to from what Postgres holds. Source: docs/audit.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from gateway.log.commit_connection import ChainBroken, CommitConnection, RefusedByPostgres
from gateway.log.entries import SequencedAppend, chain_over
from gateway.log.epoch.commit_evidence import CommitEvidence, rolled
from gateway.operations.exclusive import operator
from gateway.operations.lineage import Segment, history, segments
from gateway.operations.place import OperationFailed, Place
from gateway.operations.standing import Standing
from gateway.postgres.errors import PostgresTrouble

_COMMIT_ROWS: Final = 500
_COMMIT_TIMEOUT_S: Final = 30.0
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the way from what Postgres holds through the journal, and what lies on that way."""

    epoch: int
    seq: int
    chain: str
    appends: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair would do. `end`: how far it is proven. `joined`: Redis' history continues what Postgres
    holds. `unmended`: what was seen committed and no journal leads to. `stopped`: why it ended early."""

    standing: Standing
    parts: tuple[Segment, ...]
    end: Mark
    joined: bool
    unmended: tuple[CommitEvidence, ...]
    stopped: str | None

    @property
    def restores(self) -> bool:
        return self.end.seq > self.standing.row.seq

    @property
    def of_use(self) -> bool:
        """Whether anything changes: rows, the epoch, or an alarm that nothing speaks for any more."""
        row = self.standing.row
        ends_alarm = row.alarm is not None and not self.unmended
        return self.restores or self.end.epoch > row.epoch or ends_alarm

    @property
    def told(self) -> str:
        """One sentence for people and for the trail."""
        row, end = self.standing.row, self.end
        parts = []
        if self.restores:
            parts.append(f"commits seq {row.seq + 1}…{end.seq} again ({end.events} events) from the journal")
        if end.epoch > row.epoch:
            parts.append(f"continues in epoch {end.epoch}")
        parts += [
            f"{each.who} saw seq {each.seq} committed in epoch {each.epoch}, to which no journal leads"
            f"{f' ({self.stopped})' if self.stopped else ''}"
            for each in self.unmended
        ]
        return f"partition {self.standing.p}: " + ("; ".join(parts) or "nothing is missing")


async def plan_repair(place: Place, standing: Standing) -> Plan:
    """Reads the journal from where Postgres stands. Raises RedisTrouble, PostgresTrouble."""
    row, missing = standing.row, list(standing.missing)
    parts = tuple(await segments(place, standing.p, row, standing.seen))
    here = Mark(row.epoch, row.seq, row.chain)
    mended = [each for each in missing if await _ends_on(place, standing, each)]
    proven = _reached(here, mended)
    joined, stopped = bool(mended) or standing.in_redis, None
    # Beyond what was seen committed, the journal of Redis' own epoch is what any gateway would commit next,
    # unless a gateway saw that epoch end.
    open_epoch = None if any(each.epoch > standing.seen.epoch for each in missing) else standing.seen.epoch
    async for epoch, each in history(place, standing.p, parts, row.seq):
        placed = each.placed
        if not each.continues(here.seq, here.chain):
            stopped = _why(here, placed)
            break
        joined = True
        here = Mark(
            proven.epoch, placed.last_seq, each.chain, here.appends + 1, here.events + len(placed.events)
        )
        seen_here = [one for one in missing if (one.seq, one.chain) == (here.seq, here.chain)]
        mended += seen_here
        if seen_here or epoch == open_epoch:
            proven = _reached(here, seen_here)
    unmended = tuple(each for each in missing if each not in mended)
    return Plan(standing, parts, proven, joined, unmended, stopped)


def _reached(here: Mark, seen: list[CommitEvidence]) -> Mark:
    epoch = max([here.epoch, *(each.epoch for each in seen)])
    return Mark(epoch, here.seq, here.chain, here.appends, here.events)


def _why(here: Mark, placed: SequencedAppend) -> str:
    if placed.first_seq > here.seq + 1:
        return f"seq {here.seq + 1}…{placed.first_seq - 1} are no longer in any journal"
    return f"after seq {here.seq} the journal holds another history than Postgres"


async def _ends_on(place: Place, standing: Standing, witness: CommitEvidence) -> bool:
    """Whether Postgres has all its rows, and only the epoch that it saw was lost."""
    row = standing.row
    if witness.seq > row.seq:
        return False
    chain = await rolled(place.postgres, standing.p, witness.seq, witness.chain, row.seq)
    return witness.seq == 0 or chain == row.chain


async def repair(place: Place, plan: Plan) -> None:
    """Carries the plan out; running gateways go on by themselves. Raises OperationFailed when Postgres or the
    journal changed meanwhile, PostgresTrouble, RedisTrouble. What was done until then stays done: run it
    again."""
    standing = plan.standing
    connection = CommitConnection(place.postgres_url, _COMMIT_TIMEOUT_S, postgres=place.postgres)
    try:
        before = (standing.row.seq, standing.row.chain)
        async for run in _runs(place, plan):
            after = (run[-1].last_seq, chain_over(before[1], run))
            await _commit(place, plan, connection, before, after, run)
            before = after
    finally:
        await connection.close()
    if before != (plan.end.seq, plan.end.chain):
        raise OperationFailed(
            f"partition {standing.p}: the journal changed after seq {before[0]}: run it again"
        )
    what = "partial repair" if plan.unmended else "repair"
    where = (standing.p, standing.row.epoch, plan.end.seq, plan.end.epoch)
    told = (what, operator(), plan.told, standing.alarm)
    did = await place.fetch("finish_repair", *where, *told)
    if not did:
        raise OperationFailed(f"partition {standing.p} was sealed by a gateway in the meantime: run it again")
    if did[0]["what"] != what:
        raise OperationFailed(f"partition {standing.p}: a gateway misses more by now: run it again")


async def _runs(place: Place, plan: Plan) -> AsyncIterator[list[SequencedAppend]]:
    """The appends of the plan, as many together as one commit takes, as far as the chain leads to them."""
    run: list[SequencedAppend] = []
    rows = 0
    row = plan.standing.row
    seq, chain = row.seq, row.chain
    async for _, each in history(place, plan.standing.p, plan.parts, row.seq):
        if seq == plan.end.seq or not each.continues(seq, chain):
            break
        seq, chain = each.placed.last_seq, each.chain
        if run and rows + len(each.placed.events) > _COMMIT_ROWS:
            yield run
            run, rows = [], 0
        run.append(each.placed)
        rows += len(each.placed.events)
    if run:
        yield run


async def _commit(
    place: Place,
    plan: Plan,
    connection: CommitConnection,
    before: tuple[int, str],
    after: tuple[int, str],
    run: list[SequencedAppend],
) -> None:
    """The same compare-and-swap as a gateway's; sent again until its outcome is known."""
    p, epoch, mode = plan.standing.p, plan.standing.row.epoch, plan.standing.row.mode
    for attempt in range(_TRIES):
        try:
            if await connection.swap(p, epoch, before, after, run, mode):
                return
            row = await place.postgres.partition(p)
            if attempt and (row.epoch, row.seq, row.chain) == (epoch, *after):
                return  # a try whose answer was lost
            raise OperationFailed(f"partition {p} is at seq {row.seq} by now: run it again")
        except PostgresTrouble:
            if attempt == _TRIES - 1:
                raise
            await asyncio.sleep(0.5)
        except (ChainBroken, RefusedByPostgres) as refused:
            raise OperationFailed(
                f"partition {p}: the append at seq {run[0].first_seq} can't be committed: {refused}"
            ) from refused

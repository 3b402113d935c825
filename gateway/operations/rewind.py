"""`sluice rewind`: gives up what Postgres has lost, and says exactly what that is.

Owns: the decision, in one statement, that what was seen committed before counts no more. Every gateway
forgets it at its next look. Source: docs/audit.md.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from gateway.log.redis.scripts import RedisTrouble
from gateway.operations.exclusive import operator
from gateway.operations.lost_events import Found, LostEvents, search, spans, told_spans
from gateway.operations.place import OperationFailed, Place
from gateway.operations.repair import Plan


@dataclass(frozen=True, slots=True)
class Loss:
    """What a rewind gives up. Positions up to `known_to` were seen committed; those of `found` beyond it may
    have been. `after`: Postgres stands there, with all up to there; None where that can't be told, since
    nothing in Redis leads from what Postgres holds to what was lost."""

    plan: Plan
    after: int | None
    known_to: int
    found: Found

    @property
    def told(self) -> str:
        """One sentence for people and for the trail."""
        last = max(self.known_to, self.found.last)
        if self.after is None or self.after >= last:  # others were appended to the positions of those
            parts = [
                f"gives up what was seen committed up to seq {self.known_to} and is not in Postgres; where "
                "the two histories part, and so what else was lost, can't be told any more"
            ]
        else:
            parts = [f"gives up seq {self.after + 1}…{last}"]
        if self.gone:
            parts.append(f"of these, seq {told_spans(self.gone)} are no longer in Redis")
        where = f", seq {told_spans(spans(self.found.seqs))}" if self.found.count else ""
        parts.append(f"{self.found.count} lost events found in Redis{where}")
        return f"partition {self.plan.standing.p}: " + "; ".join(parts)

    @property
    def gone(self) -> list[tuple[int, int]]:
        """Spans of lost positions whose events are nowhere any more; none where that can't be told."""
        if self.after is None:
            return []
        edges = [(0, self.after), *spans(self.found.seqs), (self.known_to + 1, 0)]
        gaps = [(before[1] + 1, after[0] - 1) for before, after in pairwise(edges)]
        return [(first, last) for first, last in gaps if first <= last]


async def weigh(place: Place, plan: Plan, into: LostEvents) -> Loss:
    """Finds what a rewind would give up and writes the events that Redis still has. Raises OperationFailed
    when nothing is missing, RedisTrouble, PostgresTrouble, OSError."""
    standing = plan.standing
    if not standing.missing:
        raise OperationFailed(f"partition {standing.p}: nothing is missing: `sluice repair` ends its alarm")
    after = standing.row.seq if plan.joined else None
    known_to = max((each.seq for each in standing.missing), default=0)
    found = await search(place, standing, plan.parts, after or 0, known_to, into)
    return Loss(plan, after, known_to, found)


async def rewind(place: Place, loss: Loss, identity_window: int) -> int:
    """The epoch that the partition continues in. Redis is prepared for it if it answers; if not, the next
    gateway that opens the partition does so. Raises OperationFailed, PostgresTrouble."""
    standing = loss.plan.standing
    row, seen = standing.row, standing.seen
    epoch = 1 + max(row.epoch, row.rewound, seen.epoch, *(each.epoch for each in standing.missing))
    where = (standing.p, row.epoch, row.seq, epoch)
    begun = await place.fetch("rewind", *where, operator(), loss.told, standing.alarm)
    if not begun:
        raise OperationFailed(
            f"partition {standing.p} was changed by a gateway in the meantime: run it again"
        )
    keys = place.keys(standing.p, epoch)
    install = (epoch, seen.replid, begun[0]["seq"], begun[0]["chain"], identity_window)
    with suppress(RedisTrouble):
        await place.scripts.run("install", (keys.meta, keys.heads), install)
    return epoch

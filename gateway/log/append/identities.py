"""Idempotency without a time limit: which append claimed an identity, by Postgres."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.appends import Append, Appended, FeedPlace, Retry, appended_of
from gateway.derived_ids import implied_among
from gateway.log.entries import stream_of, uuids
from gateway.log.postgres import Look, Postgres
from gateway.outcomes import Mismatch
from gateway.postgres.errors import PostgresTrouble


@dataclass(frozen=True, slots=True)
class Claim:
    """A committed append holds the identity: its place, size and request digest."""

    p: int
    seq: int
    count: int
    digest: bytes

    @property
    def last(self) -> int:
        return self.seq + self.count - 1


@dataclass(frozen=True, slots=True)
class Original:
    """The append is already committed, as its own first try or as the request it repeats."""

    p: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class ClaimedByAnother:
    """An identity of the append belongs to another request, with an event at `seq`; 0: Redis says so."""

    seq: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Claims:
    """What Postgres knew in one snapshot, in which the partition stood at `epoch` and `seq`."""

    epoch: int
    seq: int
    identities: dict[tuple[bytes, bytes], Claim]
    events: dict[tuple[bytes, bytes], tuple[int, int]]

    def judge(self, append: Append) -> Original | ClaimedByAnother | None:
        """None: no append holds any of its identities."""
        verdict = self.judge_retry(append.retry)
        if verdict is None and not append.chosen:
            own = self.events.get((append.stream.tenant, append.append_id))
            if own is not None:
                # Its own first try: the gateway minted the id, and no client knows it.
                return Original(own[0], own[1], own[1] + len(append.events) - 1)
        return verdict

    def judge_retry(self, retry: Retry) -> Original | ClaimedByAnother | None:
        """The same by what the client chose only."""
        held = [self.identities.get((retry.tenant, identity)) for identity in retry.chosen]
        found = [claim for claim in held if claim is not None]
        if not found:
            taken = [self.events.get((retry.tenant, each)) for each in retry.chosen_events]
            seqs = [event[1] for event in taken if event is not None]
            return ClaimedByAnother(max(seqs)) if seqs else None
        first = found[0]
        if (
            len(found) < len(held)
            or any(claim != first for claim in found)
            or first.digest != retry.request_digest
        ):
            return ClaimedByAnother(max(claim.seq for claim in found))
        return Original(first.p, first.seq, first.last)

    def holder(self, retry: Retry) -> tuple[Literal["idempotency_key", "event_id"], Original] | None:
        """The first of the client's identities that is claimed, the key before event ids, with its claim;
        None if none is."""
        key = retry.chosen[-1] if len(retry.chosen) > len(retry.chosen_events) else None  # it is the last
        for identity in reversed(retry.chosen):
            claim = self.identities.get((retry.tenant, identity))
            if claim is not None:
                return "idempotency_key" if identity == key else "event_id", Original(
                    claim.p, claim.seq, claim.last
                )
        for event_id in retry.chosen_events:
            place = self.events.get((retry.tenant, event_id))
            if place is not None:  # minted by the gateway
                return "event_id", Original(place[0], place[1], place[1])
        return None


async def look_up(
    postgres: Postgres, p: int, retries: Sequence[Retry], minted: Sequence[tuple[bytes, bytes]] = ()
) -> Claims:
    """One statement for all; `minted` are (tenant, event id) of appends that were sent before.
    Raises PostgresTrouble."""
    identities = [(each.tenant, identity) for each in retries for identity in each.chosen]
    events = [(each.tenant, event_id) for each in retries for event_id in each.chosen_events]
    events += minted
    rows = await postgres.fetch(
        "look_up_identities",
        p,
        uuids([tenant for tenant, _ in identities]),
        b"".join([identity for _, identity in identities]),
        uuids([tenant for tenant, _ in events]),
        uuids([event_id for _, event_id in events]),
    )
    return claims_of(rows)


def claims_of(rows: Iterable[Any]) -> Claims:
    """What the rows of look_up_identities.sql, or look_directly.sql, tell of identities."""
    claims = Claims(0, 0, {}, {})
    epoch = seq = 0
    for row in rows:
        match row["kind"]:
            case "partition":
                epoch, seq = row["epoch"], row["seq"]
            case "identity":
                claim = Claim(row["p"], row["seq"], row["count"], row["digest"])
                claims.identities[row["tenant"].bytes, row["identity"]] = claim
            case "event":
                claims.events[row["tenant"].bytes, row["id"].bytes] = (row["p"], row["seq"])
    return Claims(epoch, seq, claims.identities, claims.events)


async def receipt(postgres: Postgres, original: Original, *, replayed: bool) -> Appended:
    """The receipt that the append got when it was committed. Raises PostgresTrouble, also where Postgres has
    lost a part of the append since `original` was read."""
    rows = await postgres.fetch("receipt", original.p, original.first_seq, original.last_seq)
    if len(rows) <= original.last_seq - original.first_seq:
        raise PostgresTrouble(f"partition {original.p}: the append at seq {original.first_seq} is missing")
    return _appended(rows, replayed=replayed)


async def receipt_by(postgres: Look, tenant: bytes, chosen: bytes, event_id: bytes | None) -> Appended | None:
    """The receipt of the append that has this identity, or an event with this id, minted or not; None where
    none has. Raises PostgresTrouble."""
    minted = None if event_id is None else event_id.hex()
    rows = await postgres.fetch("receipt_by_identity", tenant.hex(), chosen, minted)
    return _appended(rows, replayed=True) if rows else None


def _appended(rows: Sequence[Any], *, replayed: bool) -> Appended:
    """Of the rows of an append, in their order."""
    ids = tuple(row["id"].bytes for row in rows)
    last = FeedPlace(rows[-1]["p"], rows[-1]["seq"], rows[-1]["mark"])
    places = tuple((stream_of(row), row["version"]) for row in rows)
    first = rows[0]["aggregate_id"], rows[0]["version"]
    return appended_of(*first, ids, last, places, implied_among(ids), rows[0]["form"], replayed=replayed)


async def mismatch(postgres: Postgres, claims: Claims, retry: Retry) -> Mismatch:
    """The answer to a request whose identity belongs to another request. Raises PostgresTrouble."""
    held = claims.holder(retry)
    if held is None:
        return Mismatch()
    by, original = held
    return Mismatch(by, await receipt(postgres, original, replayed=True))

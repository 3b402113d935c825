"""Known-bad builds: the gateway with one safeguard taken out, to prove that the rig finds what it looks for.

    python -m tests.faults.bad NAME

serves like `python -m gateway serve`. Everything is done to the loaded modules of that process; the product
has no switch for any of it. Each edit asserts that what it takes out is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Build:
    """`digests` False: its row digests differ by design, so the check takes them as they are stored, and has
    to find the harm that they do. `faults`: those that it is tried under, instead of all; `settings`: of the
    gateways; `harm`: the kinds of violations that count, where a good build is not without the others under
    these faults; `spread`: over a Redis Cluster, where only it shows; `standby`: of a Postgres, likewise."""

    what: str
    spoil: Callable[[], None]
    digests: bool = True
    faults: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    harm: frozenset[str] | None = None
    spread: bool = False
    standby: str = ""


def argv(name: str) -> tuple[str, ...]:
    """How to start one."""
    return (sys.executable, "-m", "tests.faults.bad", name)


def _acknowledge_before_commit() -> None:
    from gateway.log.append.committer import Committer

    real = Committer.put

    def put(self: Committer, sequenced: Any) -> None:
        for pending, placed in zip(sequenced.pendings, sequenced.placed, strict=True):
            pending.resolve_at(placed.first_version, 0, placed.last_seq)
        real(self, sequenced)

    Committer.put = put  # type: ignore[method-assign]


def _commit_without_swap() -> None:
    from gateway.log.postgres import SQL

    text = SQL["commit"]
    text = _replaced(text, "SET seq = $5,", "SET seq = greatest(seq, $5),")
    text = _replaced(
        text,
        "WHERE p = $1 AND epoch = $2 AND mode = $36 AND seq = $3 AND chain = $4",
        "WHERE p = $1 AND ($2::bigint, $3::bigint, $4::text, $36::text) IS NOT NULL",
    )
    text = _replaced(text, "    RETURNING 1\n", "    ON CONFLICT DO NOTHING RETURNING 1\n")
    text = _replaced(
        text, "AS i(tenant, seq, count)", "AS i(tenant, seq, count)\n    ON CONFLICT DO NOTHING",
    )  # fmt: skip
    text = _replaced(text, "SELECT count(*) FROM inserted", "SELECT 1 + count(*) FROM inserted")
    for name in ("commit", "commit_plain", "commit_in_turn", "commit_in_turn_plain"):
        SQL[name] = text


def _fence_by_run_id() -> None:
    _edit(
        "before and match(info, '^%x+', before + 1)",
        "string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')",
    )


def _watermark_by_number() -> None:
    _edit("if here == chain then", "if true then")


def _chain_over_requests() -> None:
    import gateway.admit.append
    import gateway.appends
    import gateway.log.append.journal

    real_make, real_placed = gateway.appends.make_append, gateway.log.append.journal.placed_from_journal

    def of_its_request(one: Any) -> Any:
        digest = one.request_digest or one.digests[:32]
        return msgspec.structs.replace(one, digests=digest * len(one.events))

    def make_append(*args: Any) -> Any:
        return of_its_request(real_make(*args))

    def placed_from_journal(entry: Any) -> Any:
        return [(of_its_request(placed), chain) for placed, chain in real_placed(entry)]

    assert gateway.admit.append.make_append is real_make
    gateway.admit.append.make_append = make_append
    gateway.log.append.journal.placed_from_journal = placed_from_journal


def _validate_all_then_write() -> None:
    heads = "local heads, blocked, skipped = {}, {}, {}"
    _edit(heads, "local heads, blocked, skipped, added = {}, {}, {}, {}", "sequence")
    before = "local before, v, versions, answer = q, nil, nil, nil"
    _edit(before, f"if not of then head = added[key] or head end {before}", "sequence")
    _edit("  heads[key] = head\n", "  added[key] = head\n", "sequence")
    _edit("      claimed[identity] = claim\n", "", "sequence")


def _no_call_number() -> None:
    _edit(
        "if latest and tonumber(latest) >= tonumber(ARGV[9]) then return { NONCE, 'FENCED', 'late' } end",
        "",
        "sequence",
    )


def _direct_without_swap() -> None:
    from dataclasses import replace

    from gateway.log.postgres import DIRECT, SQL, PartitionRow, Postgres

    real = Postgres.seal

    async def seal(self: Postgres, p: int, epoch: int, owner: str, mode: str) -> PartitionRow | None:
        if mode != DIRECT:
            return await real(self, p, epoch, owner, mode)
        return replace(await self.partition(p), mode=DIRECT)

    Postgres.seal = seal  # type: ignore[method-assign]
    text = _replaced(SQL["commit"], "AND mode = $36 ", "AND $36::text IS NOT NULL ")
    for name in ("commit", "commit_plain", "commit_in_turn", "commit_in_turn_plain"):
        SQL[name] = text
    SQL["look_directly"] = _replaced(
        SQL["look_directly"], "AS version, mode, chain", "AS version, 'direct' AS mode, chain"
    )


def _evict_anything() -> None:
    _edit("return seq and seq <= p.c and seq or nil", "return seq", "evict")


def _evict_unnoted() -> None:
    _edit("return then_in == epoch and tonumber(then_q) >= p.e", "return then_in == epoch")


def _fence_by_shard() -> None:
    _edit("before and match(info, '^%x+', before + 1)", "redis.call('CLUSTER', 'MYSHARDID')")


def _silence_is_a_refusal() -> None:
    from redis.exceptions import RedisError, TryAgainError

    from gateway.log.redis.cluster import Cluster

    real = Cluster.send_after

    async def send_after(self: Cluster, *args: Any, **more: Any) -> list[Any]:
        try:
            return await real(self, *args, **more)
        except (RedisError, OSError) as trouble:
            raise TryAgainError(f"slot on its way: {trouble}") from trouble

    Cluster.send_after = send_after  # type: ignore[method-assign]


def _loss_adopted() -> None:
    import gateway.log.epoch.settling
    import gateway.log.epoch.verify
    from gateway.log.epoch.commit_evidence import CommitEvidence

    assert CommitEvidence.saw_more_than
    CommitEvidence.saw_more_than = lambda _self, _row: False  # type: ignore[method-assign]

    async def contains(*_: Any) -> bool:
        return True

    gateway.log.epoch.settling.contains = gateway.log.epoch.verify.contains = contains


def _found_is_told() -> None:
    from gateway.log.epoch.settling import Settling

    async def found(*_: Any) -> None:
        return

    assert Settling.found
    Settling.found = found  # type: ignore[method-assign]


def _warnings_ignored() -> None:
    from gateway.log.commit_connection import CommitConnection

    assert CommitConnection._on_notice
    CommitConnection._on_notice = lambda *_: None  # type: ignore[method-assign]


def _reads_suffice() -> None:
    import gateway.log.redis.cluster
    import gateway.log.redis.servers
    from gateway.log.epoch.redis_health import RedisHealth
    from gateway.log.redis.scripts import Scripts

    async def nothing(*_: Any) -> None:
        return

    def no_read(key: str) -> bytes:
        return gateway.log.redis.servers.pack(("EXISTS", key))

    assert Scripts.hindrance
    assert RedisHealth.refused
    assert gateway.log.redis.cluster.no_write is gateway.log.redis.servers.no_write
    gateway.log.redis.cluster.no_write = gateway.log.redis.servers.no_write = no_read
    Scripts.hindrance = nothing  # type: ignore[method-assign]
    RedisHealth.refused = lambda _self, _now: None  # type: ignore[method-assign]


def _stand_ins_unbounded() -> None:
    from gateway.log.commit_connection import CommitConnection

    async def none_has_to_end(*_: Any) -> None:
        return

    assert CommitConnection._one_has_ended
    CommitConnection._one_has_ended = none_has_to_end  # type: ignore[method-assign]


def _known_before_the_epoch() -> None:
    from gateway.log.append.known_identities import KnownIdentities

    real = KnownIdentities.verified

    def verified(self: KnownIdentities) -> None:
        real(self)
        self._from = 0

    KnownIdentities.verified = verified  # type: ignore[method-assign]


def _judges_by_any_catalog() -> None:
    import gateway.catalog.catalog

    assert gateway.catalog.catalog.STALE_S < 60
    gateway.catalog.catalog.STALE_S = 1e9  # type: ignore[misc]


def _replaced(text: str, old: str, new: str) -> str:
    assert old in text, f"{old!r} is not there any more"
    return text.replace(old, new)


def _edit(old: str, new: str, only: str | None = None) -> None:
    """In the text of one script, or in what all begin with."""
    from hashlib import sha1

    from gateway.log.redis.scripts import _Script

    real = _Script.__init__

    def make(self: _Script, name: str) -> None:
        real(self, name)
        if only in (None, name):
            self.text = _replaced(self.text, old, new)
            self.digest = sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    _Script.__init__ = make  # type: ignore[method-assign]


def _nothing() -> None:
    """The gateway as it is."""


HARM = frozenset({"lost", "doubled", "reordered", "phantom", "corrupted", "gap", "chain", "identity"})
CHANGED_BYTES = ("redis-rot", "gateway-kill", "redis-kill", "net-hold")
CUT_OFF = ("net-refuse", "net-hold", "net-swallow", "gateway-kill")
EVICTING = (("SLUICE_REDIS_BYTES_MAX", "1048576"),)
"""Less than an empty Redis takes: eviction never ends."""
REFUSING = ("redis-misconf", "redis-noreplicas", "redis-acl", "redis-pause-writes")
SET_BACK = ("redis-set-back", "gateway-pause", "net-hold", "redis-pause")

REPLACED = ("redis-aba", "redis-promote", "redis-split")
PATIENT = (("SLUICE_DIRECT_AFTER_S", "30"),)
"""Direct mode would end the epoch before a master that was a replica for a while is back."""

SHORT_DEADLINE = (("SLUICE_APPEND_DEADLINE_S", "1"),)
HASTY = (("SLUICE_APPEND_DEADLINE_S", "0.5"), ("SLUICE_REDIS_TIMEOUT_S", "0.2"))
"""Appends are answered while a node that stands still is not yet replaced, and continues in its life."""

BUILDS: dict[str, Build] = {
    "acknowledge-first": Build("acknowledges before the commit", _acknowledge_before_commit),
    "no-swap": Build("INSERT … ON CONFLICT DO NOTHING without compare-and-swap", _commit_without_swap),
    "run-id-fence": Build(
        "fences on run_id instead of master_replid", _fence_by_run_id, faults=REPLACED, settings=PATIENT
    ),
    "number-watermark": Build(
        "moves the watermark by number, not by chain", _watermark_by_number, faults=SET_BACK, harm=HARM
    ),
    "request-chain": Build(
        "chains request digests, not rows", _chain_over_requests, digests=False, faults=CHANGED_BYTES
    ),
    "validate-first": Build("checks every append of a call before it writes any", _validate_all_then_write),
    "direct-in-silence": Build(
        "goes direct without the swap of the mode", _direct_without_swap, faults=CUT_OFF
    ),
    "known-before": Build(
        "takes for new in an epoch what it did not read of the one before",
        _known_before_the_epoch, faults=("redis-wipe", "redis-kill"),
    ),
    "no-call-number": Build("lets a late script call run after a later one", _no_call_number),
    "evict-anything": Build("evicts streams that are not all committed", _evict_anything, settings=EVICTING),
    "evict-unnoted": Build(
        "believes what Postgres said of a stream before it came and was evicted",
        _evict_unnoted,
        settings=EVICTING,
    ),
    "reads-suffice": Build(
        "takes a Redis that answers reads for one that takes writes", _reads_suffice, faults=REFUSING
    ),
    "stand-ins-unbounded": Build(
        "sends a commit that waits on one more connection each time",
        _stand_ins_unbounded, faults=("postgres-lock",), settings=SHORT_DEADLINE,
    ),
    "any-catalog": Build(
        "judges by keys and specs of any age", _judges_by_any_catalog, faults=("stopped-past-leases",)
    ),
    "loss-adopted": Build(
        "goes on from a Postgres that lost commits",
        _loss_adopted, faults=("lossy-fail-over", "restored"), standby="asynchronous",
    ),
    "found-is-told": Build(
        "answers by what it only finds in Postgres",
        _found_is_told, faults=("crash-in-wait",), standby="synchronous",
    ),
    "warnings-ignored": Build(
        "takes a commit that was answered with a warning for durable",
        _warnings_ignored, faults=("crash-in-wait",), standby="synchronous",
    ),
    "shard-fence": Build(
        "fences on the shard, which a replica that takes its master's place shares",
        _fence_by_shard, faults=("node-behind",), settings=PATIENT, spread=True,
    ),
    "silence-refuses": Build(
        "takes a node that does not answer for one that refused",
        _silence_is_a_refusal, faults=("node-pause",), settings=HASTY + PATIENT, spread=True,
    ),
}  # fmt: skip
GOOD = {
    "good-set-back": Build(
        "nothing taken out, the faults of number-watermark", _nothing, faults=SET_BACK, harm=HARM
    )
}
"""For comparison: must not be caught."""


def main(name: str) -> None:
    """Never returns normally: serves until it is ended."""
    (BUILDS | GOOD)[name].spoil()
    from gateway.__main__ import main as sluice

    sys.argv = ["sluice", "serve"]
    sluice()


if __name__ == "__main__":
    main(sys.argv[1])

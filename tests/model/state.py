"""A state of the model: nothing but integers and tuples, so that it can be compared and kept in a set."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

# Stages of an append. From ANSWERED on no client waits for it; REFUSED was told that it will never appear.
NEW, QUEUED, HELD, RUNNING, WAITING, ANSWERED, REFUSED = range(7)
COMMITTED = -1


class Data(NamedTuple):
    """What a Redis holds of the partition. `h` is the history sequenced, `c` the watermark's, `base` the one
    that it was installed with; `evicted` the highest seq of an event that was evicted; `hot` the streams that
    are here, a bit each; `torn` 0 or 1 + the stream that a failed script wrote to; `outdated` the delayed
    calls that come too late, a bit each; `tags_from` the seq behind which it says that it has all tags,
    `tags_held` behind which it has them; `looked` the seq up to which no event had the tag of conditions, by
    a look that it remembers, -1: by none."""

    epoch: int
    fence: int
    base: int
    h: int
    c: int
    evicted: int
    hot: int
    torn: int
    outdated: int
    tags_from: int = 0
    tags_held: int = 0
    looked: int = -1


class Node(NamedTuple):
    """A Redis server. `run_id` changes when it restarts, `replid` also when it is promoted."""

    master: bool
    run_id: int
    replid: int
    data: Data | None


class Gateway(NamedTuple):
    """`direct`: its appends take no Redis; `confirmed` is the seq up to which its answers may rest, `phase`
    what its sequencer is in the middle of, `runs` what its committer has: (epoch, before, after), `stuck`
    whether it waits for a verification."""

    alive: bool
    epoch: int
    open: bool
    direct: bool
    confirmed: int
    phase: tuple[Any, ...]
    runs: tuple[tuple[int, int, int], ...]
    stuck: bool


class Pending(NamedTuple):
    """`extra` is the hint of a queued append, (epoch, seq as of which, head), only the first two
    until Postgres was asked; or what a waiting one will be
    answered, (kind, basis, value); `floor` the seq acknowledged to anyone before it was sent; `looked_up` the
    seq at which Postgres did not know its identities, -1 before it was asked; `look` what Postgres said of
    its condition, (epoch, seq, seq of the first match or 0), empty before; `place`, where others were judged
    on it or it on another: the epoch in which it was sequenced where they expect it, COMMITTED, or 0."""

    stage: int
    doubt: bool
    again: bool
    extra: tuple[Any, ...]
    floor: int
    looked_up: int = -1
    look: tuple[int, ...] = ()
    place: int = 0


class State(NamedTuple):
    """Postgres' epoch, whether it takes no Redis, and history; then everybody else. `late` are messages under
    way, `left` the faults that may still happen, `read` a read under way, `top` the seq up to which something
    was acknowledged."""

    epoch: int
    direct: bool
    history: int
    nodes: tuple[Node, ...]
    gateways: tuple[Gateway, ...]
    pendings: tuple[Pending, ...]
    late: tuple[tuple[Any, ...], ...]
    left: int
    read: tuple[Any, ...]
    top: int


T = TypeVar("T", bound=tuple[Any, ...])
_AT: dict[Any, dict[str, int]] = {
    kind: {name: n for n, name in enumerate(kind._fields)} for kind in (Data, Node, Gateway, Pending)
}  # fmt: skip


def changed(of: T, changes: dict[str, Any]) -> T:
    """`of._replace(**changes)` in less than half of its time, of which a search would take a sixth."""
    kind: Any = type(of)
    fields, at = list(of), _AT[kind]
    for name, value in changes.items():
        fields[at[name]] = value
    return tuple.__new__(kind, fields)  # type: ignore[no-any-return]


class Broken(Exception):
    """A promise does not hold."""

"""The configurations in which every promise has to hold, each small and about one thing.

HELD and LIVE run with the tests; LARGER takes minutes to hours and is for running by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.model.scenario import ANY, AT_LEAST_ONE, OWN, Append, Rules, Scenario


@dataclass(frozen=True)
class Case:
    about: str
    scenario: Scenario


_BOTH = Append(0, body=1, others=((1, 0),))
_SEAT = Append(0, body=1, tags=(1,), unless=1)
ROW = (Append(0, body=1, expected=0), Append(0, body=2, expected=1, on=0))
FREE = (
    Append(0, body=1, expected=0),
    Append(0, body=2, on=0, free=True),
    Append(0, body=3),
    Append(0, body=4, expected=2, on=1),
)
RETRIED = (
    Append(0, body=1, key=1, expected=1),
    Append(0, body=2, expected=2, on=0),
    Append(1, body=1, key=1),
    Append(1, body=3),
)
_ONE = Append(0, body=1)
_TWO = Append(1, body=2)
# A request under an Idempotency-Key, and its client's retry at another gateway.
_KEYED, _RETRY = Append(0, body=1, key=1), Append(1, body=1, key=1, after=0)
_ROWS = Scenario(
    appends=(*ROW, Append(1, body=3)),
    faults=("lose reply", "lose commit", "delay call", "crash", "die", "lose redis", "expire"),
    budget=1,
)
_EVICTED = Scenario(appends=(_ONE, _TWO), cold=True, faults=("evict", "delay call"), budget=2)

HELD = {
    "batches": Case(
        "several appends a call, of one and of two events; helping; replies and commits lost or late",
        Scenario(
            appends=(_ONE, Append(0, 2, events=2), Append(1, 3, expected=1)),
            faults=("lose reply", "lose commit", "delay call", "delay commit"),
            budget=2,
        ),
    ),
    "two streams": Case(
        "four appends to two streams by two gateways, commits lost or late",
        Scenario(
            appends=(_ONE, Append(0, 2, events=2), Append(1, 3, expected=1), Append(1, 4, stream=1)),
            faults=("lose commit", "delay commit"),
            budget=1,
        ),
    ),
    "redis dies": Case(
        "Redis loses its last appends or all, twice",
        Scenario(appends=(_ONE, _TWO), faults=("crash", "wipe"), budget=2, epochs=4),
    ),
    "slow verification": Case(
        "Redis and Postgres change between the looks of a verification; installations arrive late",
        Scenario(appends=(_ONE, _TWO), faults=("crash", "delay install"), budget=2, epochs=4, slow_look=True),
    ),
    "gateways die": Case(
        "a gateway dies with calls and commits under way, Redis crashes, the client retries elsewhere",
        Scenario(appends=(_KEYED, _TWO, _RETRY), faults=("crash", "die"), budget=2),
    ),
    "retries": Case(
        "a keyed request and its retry elsewhere, calls lost or late, deadlines pass",
        Scenario(
            appends=(replace(_KEYED, expected=0), _TWO, replace(_RETRY, expected=0)),
            faults=("lose reply", "delay call", "expire"),
            budget=2,
        ),
    ),
    "one gateway": Case(
        "a request that may never appear once it was refused, whatever is under way",
        Scenario(
            appends=(Append(0, 1, expected=1), Append(0, 2)),
            gateways=1,
            faults=("lose reply", "lose commit", "delay call", "delay commit", "crash", "expire"),
            budget=3,
        ),
    ),
    "mismatches": Case(
        "three requests that share a key or an event id and nothing else",
        Scenario(
            appends=(Append(0, 1, key=1, event=1), Append(1, 2, key=1), Append(1, 3, event=1, after=0)),
            faults=("crash", "lose reply"),
            budget=1,
        ),
    ),
    "identities are forgotten": Case(
        "identity hashes of one event each, so that they turn at every append",
        Scenario(
            appends=(_KEYED, Append(0, 2, events=2), Append(1, 3), _RETRY),
            window=1,
            faults=("lose reply",),
            budget=1,
        ),
    ),
    "cold streams": Case(
        "streams that Redis misses, hints of their heads, fills, eviction, a Redis that is wiped",
        Scenario(
            appends=(_ONE, Append(1, 2, expected=0)),
            cold=True,
            fills=True,
            faults=("evict", "wipe"),
            budget=2,
        ),
    ),
    "eviction": Case(
        "a stream evicted as soon as it may be, calls with hints from before that, late ones too",
        _EVICTED,
    ),
    "eviction, two streams": Case(
        "the same, and one append to another stream; one fault",
        replace(_EVICTED, appends=(_ONE, _TWO, Append(0, 3, stream=1)), budget=1),
    ),
    "torn scripts": Case(
        "scripts that fail half-way, replies lost, crashes",
        Scenario(appends=(_ONE, _TWO), faults=("tear", "lose reply", "crash"), budget=2),
    ),
    "failover": Case(
        "two servers, replication that lags, promotions and demotions, a reply lost",
        Scenario(
            appends=(_ONE, _TWO), nodes=2, epochs=2, faults=("promote", "demote", "lose reply"), budget=2
        ),
    ),
    "two masters": Case(
        "both servers take appends, calls to the one arrive after the gateway went to the other",
        Scenario(
            appends=(Append(0, 1, expected=1), _TWO),
            nodes=2,
            epochs=2,
            faults=("promote", "delay call", "expire"),
            budget=2,
        ),
    ),
    "reads": Case(
        "a read of what is in doubt, while Redis is wiped and it is sequenced again, or streams are evicted",
        Scenario(
            appends=(_ONE, Append(1, 2, stream=1), Append(1, 3)),
            cold=True,
            reads=True,
            epochs=2,
            faults=("wipe", "evict"),
            budget=1,
        ),
    ),
    "direct mode": Case(
        "gateways go direct and back while others reach Redis, commits lost or late; conflicts in real time",
        Scenario(
            appends=(_ONE, _TWO, Append(1, 3, expected=2, after=0)),
            realtime=True,
            epochs=4,
            faults=("lose redis", "lose commit", "delay commit"),
            budget=2,
        ),
    ),
    "direct retries": Case(
        "a keyed request, its like in the same batch and its retry elsewhere, across both ways",
        Scenario(
            appends=(_KEYED, replace(_KEYED, body=9), _RETRY),
            epochs=4,
            faults=("lose redis", "lose reply", "lose commit", "expire"),
            budget=2,
        ),
    ),
    "several streams in one append": Case(
        "appends to two streams in both orders, beside plain ones; replies and commits lost, Redis crashes",
        Scenario(
            appends=(_BOTH, Append(1, 2, stream=1, others=((0, 1),)), Append(1, 3, stream=1)),
            faults=("lose reply", "lose commit", "delay commit", "crash"),
            budget=1,
        ),
    ),
    "several streams, cold": Case(
        "appends to two streams that Redis misses, one or both; eviction, a Redis that is wiped",
        Scenario(
            appends=(_BOTH, Append(1, 2, stream=1, others=((0, ANY),))),
            cold=True,
            epochs=2,
            faults=("evict", "wipe"),
            budget=2,
        ),
    ),
    "several streams, read": Case(
        "reads of both streams in real time",
        Scenario(
            appends=(_BOTH, Append(1, 2, stream=1, others=((0, ANY),), after=0)),
            reads=True,
            realtime=True,
            faults=("crash", "wipe", "lose commit"),
            budget=1,
        ),
    ),
    "conditions": Case(
        "two appends on one boundary and a plain one; calls, replies and commits lost or late, Redis dies",
        Scenario(
            appends=(_SEAT, Append(1, 2, tags=(1,), unless=1), Append(1, 3)),
            faults=("lose reply", "lose commit", "delay call", "crash", "wipe"),
            budget=1,
        ),
    ),
    "conditions, several streams": Case(
        "a match in an append to several streams, and a condition on one",
        Scenario(
            appends=(Append(0, 1, others=((1, 0),), tags=(1,)), Append(1, 2, others=((1, ANY),), unless=1)),
            faults=("lose reply", "lose commit", "wipe", "tear"),
            budget=1,
        ),
    ),
    "conditions by tags": Case(
        "as conditions, where Redis is asked about the tag before Postgres, or after it",
        Scenario(
            appends=(_SEAT, Append(1, 2, tags=(1,), unless=1), Append(1, 3)),
            by_tags=True,
            faults=("lose reply", "delay call", "wipe", "evict tags"),
            budget=1,
        ),
    ),
    "conditions by own tags": Case(
        "the boundary is a stream; that is evicted, and what is known of tags",
        Scenario(
            appends=(
                Append(0, 1, stream=1),
                Append(1, 2, others=((1, ANY),), unless=OWN + 1),
            ),
            by_tags=True,
            faults=("evict", "evict tags", "wipe", "tear"),
            budget=2,
        ),
    ),
    "conditional retries": Case(
        "a keyed append with a condition that its own event fails, its retry elsewhere, and a rival",
        Scenario(
            appends=(
                Append(0, 1, key=1, tags=(1,), unless=1),
                Append(1, 2, tags=(1,), unless=1),
                Append(1, 1, key=1, tags=(1,), unless=1, after=0),
            ),
            faults=("lose reply", "lose commit", "crash", "expire"),
            budget=1,
        ),
    ),
    "conditions in direct mode": Case(
        "conditions judged on Postgres and on the batch, across both ways",
        Scenario(
            appends=(_SEAT, Append(0, 2, tags=(1,), unless=1), Append(1, 3, tags=(1,), unless=1)),
            epochs=3,
            faults=("lose redis", "lose commit", "delay commit"),
            budget=1,
        ),
    ),
    "rows": Case(
        "an append judged on the state behind another, and a rival; replies and commits lost, direct mode",
        _ROWS,
    ),
    "rows that wait": Case(
        "the same, behind another gateway's append, without which the row can't be committed",
        Scenario(
            appends=(*ROW, Append(1, body=3, stream=1), Append(1, body=4, expected=0)),
            epochs=2,
            faults=("wipe",),
            budget=1,
        ),
    ),
    "rows with free ones": Case(
        "the second of a row stands anywhere, and the third was judged behind it; one between is of no row",
        Scenario(appends=FREE, gateways=1, faults=("expire", "wipe", "lose redis"), budget=1),
    ),
    "rows with retries": Case(
        "the first of a row is a retry of an append of another gateway; replies lost, Redis crashes",
        Scenario(appends=RETRIED, epochs=2, faults=("lose reply", "crash"), budget=1),
    ),
    "in real time": Case(
        "reads and conflicts know what was acknowledged before they began",
        Scenario(
            appends=(_ONE, Append(1, 2, expected=1, after=0)),
            reads=True,
            realtime=True,
            faults=("crash", "wipe", "lose commit"),
            budget=1,
        ),
    ),
}

LIVE = {
    "at rest after a crash": Case(
        "from every state a way leads to rest: Redis crashes, a gateway dies",
        Scenario(appends=(_ONE, _TWO), faults=("crash", "die"), budget=2, epochs=5),
    ),
    "at rest after direct mode": Case(
        "the same with gateways that reach no Redis for a while, or die",
        Scenario(appends=(_ONE, _TWO), faults=("lose redis", "die", "lose commit"), budget=2, epochs=5),
    ),
    "at rest with conditions": Case(
        "the same with two appends on one boundary, one of them to two streams",
        Scenario(
            appends=(_SEAT, Append(1, 2, others=((1, ANY),), tags=(1,), unless=1)),
            faults=("crash", "die", "lose commit"),
            budget=1,
            epochs=4,
        ),
    ),
    "at rest after delays": Case(
        "the same with calls, commits and installations lost or late, and a torn script",
        Scenario(
            appends=(_ONE, _TWO),
            faults=("lose reply", "lose commit", "delay call", "delay commit", "delay install", "tear"),
            budget=2,
            epochs=5,
        ),
    ),
}

_EVERYTHING_OF_ONE_SERVER = (
    "crash", "wipe", "tear", "lose reply", "delay call", "lose commit", "delay commit", "die", "expire",
)  # fmt: skip

LARGER = {
    "eviction, further": Case(
        "two streams, any two of the faults",
        replace(_EVICTED, appends=(_ONE, _TWO, Append(0, 3, stream=1))),
    ),
    "conditions, further": Case(
        'the same as "conditions", with any two of its faults',
        Scenario(
            appends=(_SEAT, Append(1, 2, tags=(1,), unless=1), Append(1, 3)),
            faults=("lose reply", "lose commit", "delay call", "crash", "wipe"),
            budget=2,
        ),
    ),
    "rows, further": Case(
        'the same as "rows", with any two of its faults',
        replace(_ROWS, budget=2),
    ),
    "rows, failover": Case(
        "the same between two servers",
        replace(_ROWS, nodes=2, epochs=2, faults=("promote", "demote", "lose reply"), budget=2),
    ),
    "direct mode, further": Case(
        "the same, and Redis crashes, calls are late, gateways die",
        Scenario(
            appends=(_KEYED, Append(1, 2, expected=1), _RETRY),
            realtime=True,
            epochs=4,
            faults=("lose redis", "lose commit", "delay commit", "delay call", "crash", "die"),
            budget=2,
        ),
    ),
    "everything, one server": Case(
        "two appends, any three faults of one server, its gateways and its network",
        Scenario(
            appends=(_ONE, Append(1, 2, expected=AT_LEAST_ONE)),
            faults=_EVERYTHING_OF_ONE_SERVER,
            budget=3,
            epochs=4,
        ),
    ),
    "three appends, two crashes": Case(
        "a retry elsewhere and a third append, Redis crashes or is wiped twice",
        Scenario(appends=(_KEYED, _TWO, _RETRY), faults=("crash", "wipe"), budget=2, epochs=4),
    ),
    "failover, further": Case(
        "two servers, three epochs, three faults",
        Scenario(
            appends=(_ONE, _TWO), nodes=2, faults=("promote", "demote", "lose reply", "expire"), budget=3
        ),
    ),
    "real time, further": Case(
        "reads and conflicts in real time, two faults",
        Scenario(
            appends=(_ONE, Append(1, 2, expected=1, after=0)),
            reads=True,
            realtime=True,
            faults=("crash", "wipe", "lose commit"),
            budget=2,
        ),
    ),
    "set back, answers checked": Case(
        "Redis is set back within one life; Postgres is asked before what waited for a commit is answered",
        Scenario(
            appends=(_KEYED, Append(1, 2, expected=0), _RETRY),
            faults=("restore", "lose reply"),
            budget=2,
            rules=Rules(answers="checked"),
        ),
    ),
}

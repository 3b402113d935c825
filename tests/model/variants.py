"""Protocols that are almost ours, each without one rule. Each must be caught, by the shortest way there is:
one that no longer is means that the model has stopped looking, or that the rule is not needed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.model.configurations import FREE, RETRIED, ROW
from tests.model.scenario import ANY, OWN, Append, Rules, Scenario

_ONE, _TWO = Append(0, body=1), Append(1, body=2)
_KEYED, _RETRY = Append(0, body=1, key=1), Append(1, body=1, key=1, after=0)


_SEAT, _RIVAL = Append(0, body=1, tags=(1,), unless=1), Append(1, body=2, tags=(1,), unless=1)


@dataclass(frozen=True)
class Variant:
    """`breaks` is part of the promise's words; `strands` says that it is the way to rest that is missing."""

    scenario: Scenario
    breaks: str
    strands: bool = False


UNSAFE = {
    "acknowledge before the commit": Variant(
        Scenario(appends=(_ONE,), gateways=1, rules=Rules(acknowledge="sequenced")),
        "acknowledged at version 1 and is not there",
    ),
    "INSERT ON CONFLICT DO NOTHING": Variant(
        Scenario(appends=(_ONE, _TWO), rules=Rules(commit="do nothing")),
        "stands at version 2 of a stream that has 0 events",
    ),
    "a fence on the run id": Variant(
        Scenario(
            appends=(_ONE, _TWO, Append(1, 3, expected=0)),
            nodes=2,
            epochs=1,
            faults=("promote", "demote"),
            budget=3,
            rules=Rules(fence="run id"),
        ),
        "a conflict on a history that is not committed",
    ),
    "a server is believed in another life, in the same epoch": Variant(
        Scenario(
            appends=(_KEYED, _TWO, _RETRY), faults=("crash",), budget=1, rules=Rules(another_life="refence")
        ),
        "answered with the receipt of 1",
    ),
    "the same, and answers are asked of Postgres once more": Variant(
        Scenario(
            appends=(_ONE, _TWO),
            nodes=2,
            epochs=2,
            faults=("promote", "lose reply", "expire"),
            budget=3,
            rules=Rules(another_life="refence", answers="checked"),
        ),
        "answered not_committed and is there",
    ),
    "verify by a copy of Postgres, without a seal": Variant(
        Scenario(appends=(_KEYED, _RETRY), faults=("crash",), budget=1, rules=Rules(divergence="copy")),
        "append 1 is there beside append 0 of the same identity",
    ),
    "a watermark by number": Variant(
        Scenario(appends=(_ONE, _TWO), faults=("restore",), budget=1, rules=Rules(watermark="number")),
        "the watermark of Redis 0 is at a history that Postgres does not have",
    ),
    "a chain over the requests alone": Variant(
        Scenario(
            appends=(_ONE, Append(1, body=1)), faults=("restore",), budget=1, rules=Rules(chain="requests")
        ),
        "the watermark of Redis 0 is at a history that Postgres does not have",
    ),
    "all appends of a call judged on the state before it": Variant(
        Scenario(
            appends=(Append(0, 1, expected=0), Append(0, 2, expected=0)),
            gateways=1,
            rules=Rules(validate="before the call"),
        ),
        "asked to stand after 0 events and stands after 1",
    ),
    "calls without numbers": Variant(
        Scenario(
            appends=(Append(0, 1, expected=1), _TWO),
            faults=("delay call",),
            budget=1,
            rules=Rules(call_numbers=False),
        ),
        "appears after it was answered that it never will",
    ),
    "identities forgotten in silence": Variant(
        Scenario(
            appends=(_KEYED, Append(0, 2), Append(0, 3), _RETRY), window=1, rules=Rules(look_again=False)
        ),
        "append 3 is there beside append 0 of the same identity",
    ),
    "sequenced again without a look-up": Variant(
        Scenario(appends=(_ONE, _TWO), faults=("wipe", "lose reply"), budget=2, rules=Rules(relook=False)),
        "append 0 is there beside append 0 of the same identity",
    ),
    "a look-up of an epoch that has ended": Variant(
        Scenario(appends=(_KEYED, _RETRY), faults=("wipe",), budget=1, rules=Rules(look_anew=False)),
        "append 1 is there beside append 0 of the same identity",
    ),
    "an eviction that no hint takes note of": Variant(
        Scenario(appends=(_ONE, _TWO), cold=True, faults=("evict",), budget=1, rules=Rules(evicted=False)),
        "stands at version 1 of a stream that has 1 events",
    ),
    "eviction of what is not committed": Variant(
        Scenario(
            appends=(_ONE, _TWO), cold=True, faults=("evict",), budget=1, rules=Rules(evicts="anything")
        ),
        "stands at version 1 of a stream that has",
    ),
    "a head hint that outlives its epoch": Variant(
        Scenario(appends=(_ONE, _TWO), cold=True, faults=("wipe",), budget=1, rules=Rules(hint_epoch=False)),
        "stands at version 1 of a stream that has 1 events",
    ),
    "an installation that lowers the epoch": Variant(
        Scenario(
            appends=(_ONE, Append(0, 2, after=0), Append(1, 3, expected=2, after=1)),
            fills=True,
            realtime=True,
            faults=("crash",),
            budget=1,
            rules=Rules(install_epoch=False, conflict_looks=False),  # whose look would hide it
        ),
        "a conflict with 1 events, not what the stream has",
    ),
    "an alarm at first sight": Variant(
        Scenario(
            appends=(_ONE, _TWO),
            slow_look=True,
            faults=("lose reply",),
            budget=1,
            rules=Rules(second_look=False),
        ),
        "Postgres seems to have lost commits, and has not",
    ),
    "a conflict before its basis is committed": Variant(
        Scenario(appends=(_ONE, Append(1, 2, expected=0)), rules=Rules(conflict_waits=False)),
        "a conflict on a history that is not committed",
    ),
    "direct mode without the swap of the mode": Variant(
        Scenario(
            appends=(_ONE, _TWO, Append(1, 3, expected=2, after=0)),
            realtime=True,
            faults=("lose redis",),
            budget=1,
            rules=Rules(mode="in silence"),
        ),
        "a conflict with 1 events, not what the stream has",
    ),
    "a conflict without a look whether its epoch stands": Variant(
        Scenario(
            appends=(_ONE, _TWO, Append(1, 3, expected=2, after=0)),
            realtime=True,
            faults=("lose redis",),
            budget=1,
            rules=Rules(conflict_looks=False),
        ),
        "a conflict with 1 events, not what the stream has",
    ),
    "in direct mode, verdicts before their batch is committed": Variant(
        Scenario(
            appends=(_ONE, Append(0, 2, expected=0)),
            gateways=1,
            faults=("lose redis",),
            budget=1,
            rules=Rules(rests=False),
        ),
        "a conflict on a history that is not committed",
    ),
    "a replay before its original is committed": Variant(
        Scenario(appends=(_KEYED, _RETRY), rules=Rules(replay_waits=False)),
        "answered with the receipt of None",
    ),
    "one's own retry is not in doubt": Variant(
        Scenario(
            appends=(_ONE,),
            gateways=1,
            faults=("lose reply", "expire"),
            budget=2,
            rules=Rules(own_doubt=False),
        ),
        "answered not_committed and is there",
    ),
    "helped, by the event ids alone": Variant(
        Scenario(
            appends=(Append(0, 1, event=1), Append(1, 2, event=1)),
            faults=("wipe",),
            budget=1,
            rules=Rules(helped="ids"),
        ),
        "append 0 is acknowledged at version 1 and is not there",
    ),
    "a read that trusts all below the newest confirmed": Variant(
        Scenario(
            appends=(_ONE, Append(1, 2, stream=1), Append(1, 3)),
            cold=True,
            reads=True,
            epochs=2,
            faults=("wipe",),
            budget=1,
            rules=Rules(doubt="newest"),
        ),
        "at version 1, where it is not",
    ),
    "an append to several streams, by the first one's length": Variant(
        Scenario(
            appends=(Append(0, 1, stream=1), Append(0, 2, others=((1, 0),))),
            gateways=1,
            rules=Rules(lengths="first"),
        ),
        "asked to stand after 0 events and stands after 1",
    ),
    "a further stream that Redis does not have is empty": Variant(
        Scenario(
            appends=(Append(0, 1, stream=1), Append(0, 2), Append(0, 3, others=((1, ANY),))),
            gateways=1,
            cold=True,
            faults=("evict",),
            budget=1,
            rules=Rules(others_cold=False),
        ),
        "stands at version 1 of a stream that has 1 events",
    ),
    "a condition judged outside the script": Variant(
        Scenario(appends=(_SEAT, _RIVAL), rules=Rules(condition="look")),
        "stands after an event that its condition excludes",
    ),
    "a look at a condition that counts for what is not committed": Variant(
        Scenario(appends=(_SEAT, _RIVAL), rules=Rules(look="sequenced")),
        "stands after an event that its condition excludes",
    ),
    "a look at a condition that outlives its epoch": Variant(
        Scenario(appends=(_SEAT, _RIVAL), faults=("wipe",), budget=1, rules=Rules(look_epoch=False)),
        "stands after an event that its condition excludes",
    ),
    "a condition refused before the match is committed": Variant(
        Scenario(appends=(_SEAT, _RIVAL), rules=Rules(condition_waits=False)),
        "refused by an event that is not committed",
    ),
    "in a new epoch, tags are known of all that was there": Variant(
        Scenario(
            appends=(_SEAT, _RIVAL), by_tags=True, faults=("wipe",), budget=1, rules=Rules(tags_epoch=False)
        ),
        "stands after an event that its condition excludes",
    ),
    "an eviction of tags that nothing takes note of": Variant(
        Scenario(
            appends=(_SEAT, _RIVAL),
            by_tags=True,
            faults=("evict tags",),
            budget=1,
            rules=Rules(tags_evicted=False),
        ),
        "stands after an event that its condition excludes",
    ),
    "an evicted stream whose own tag counts as known": Variant(
        Scenario(
            appends=(Append(0, 1, stream=1), Append(1, 2, unless=OWN + 1)),
            by_tags=True,
            faults=("evict",),
            budget=1,
            rules=Rules(own_evicted=False),
        ),
        "stands after an event that its condition excludes",
    ),
    "a look-up that outlives its epoch, beside the queue": Variant(
        Scenario(
            appends=(replace(_SEAT, key=1), Append(1, 1, key=1, after=0)),
            faults=("wipe",),
            budget=1,
            rules=Rules(beside=False),
        ),
        "append 0 is there beside append 1 of the same identity",
    ),
    "a row by its lengths": Variant(
        Scenario(appends=(*ROW, Append(1, 3)), rules=Rules(links="length")),
        "append 1 was judged behind appends (0,)",
    ),
    "a row that ends with its call": Variant(
        Scenario(appends=(*ROW, Append(1, 3)), rules=Rules(links="call")),
        "append 1 was judged behind appends (0,)",
    ),
    "a row that direct mode does not know of": Variant(
        Scenario(
            appends=(*ROW, Append(1, 3)),
            faults=("lose redis",),
            budget=1,
            rules=Rules(links_directly=False),
        ),
        "append 1 was judged behind appends (0,)",
    ),
    "a place that outlives its epoch": Variant(
        Scenario(
            appends=(*ROW, Append(1, 3, stream=1), Append(1, 4, expected=0)),
            epochs=2,
            faults=("wipe",),
            budget=1,
            rules=Rules(link_epoch=False),
        ),
        "append 1 was judged behind appends (0,)",
    ),
    "a free one that counts as placed wherever it stands in its call": Variant(
        Scenario(
            appends=FREE,
            gateways=1,
            faults=("expire",),
            budget=1,
            rules=Rules(link_free=False),
        ),
        "append 3 was judged behind appends (0, 1)",
    ),
    "a replay that counts as placed": Variant(
        Scenario(appends=RETRIED, rules=Rules(link_own=False)),
        "append 1 was judged behind appends (0,)",
    ),
    "no torn flag": Variant(
        Scenario(appends=(_ONE, _TWO), faults=("tear",), budget=1, rules=Rules(torn=False)),
        "stands at version 2 of a stream that has 0 events",
    ),
    "waiting for a hole that no gateway can fill": Variant(
        Scenario(
            appends=(_ONE, _TWO),
            faults=("crash", "die"),
            budget=2,
            epochs=5,
            rules=Rules(another_life="refence", hole="wait"),
        ),
        "no way leads to rest",
        strands=True,
    ),
}

# The rules as they are, and a fault that they are not made for.
BEYOND = {
    "a Redis that is set back within one life": Variant(
        Scenario(appends=(_KEYED, _TWO, _RETRY), faults=("restore",), budget=1),
        "answered with the receipt of 1",
    ),
}

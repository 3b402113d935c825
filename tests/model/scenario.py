"""What is explored: the appends, the servers, the faults, and the rules that the protocol goes by."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

ANY = -1
OWN = 100
AT_LEAST_ONE = -2


@dataclass(frozen=True)
class Append:
    """One request to append, at the gateway that it reaches.

    Requests with equal `key` (Idempotency-Key) or `event` (event id that the client chose) claim one
    identity; with equal `body`, they ask for the same. `after`: sent only once that other request is under
    way, as a client's retry is; None waits in its gateway from the start. A gateway takes its appends in the
    order in which they were sent, which is the one that they are listed in.

    `others` are further streams, (stream, expected), with an event each, after its own events. All of its
    events have its `tags` and that of each of its streams, OWN + the stream; with `unless`, no event that is
    there before may have that tag.

    `on` is an earlier append of its gateway, on whose state it was judged before that was committed (a Link).
    It may stand only behind that one, `expected` being what the stream is then; a `free` one stands anywhere,
    and others were judged on it.
    """

    gateway: int
    body: int
    stream: int = 0
    expected: int = ANY
    events: int = 1
    key: int | None = None
    event: int | None = None
    after: int | None = None
    others: tuple[tuple[int, int], ...] = ()
    tags: tuple[int, ...] = ()
    unless: int | None = None
    on: int | None = None
    free: bool = False

    @cached_property
    def size(self) -> int:
        return self.events + len(self.others)

    @cached_property
    def streams(self) -> tuple[int, ...]:
        return (self.stream, *[stream for stream, _ in self.others])

    @cached_property
    def parts(self) -> tuple[tuple[int, int, int], ...]:
        """Of each of its streams: which, what it is expected to be, and how many events."""
        return ((self.stream, self.expected, self.events), *[(*other, 1) for other in self.others])


@dataclass(frozen=True)
class Rules:
    """The protocol's rules as they have to be. Each variant of variants.py breaks one."""

    acknowledge: str = "committed"  # | sequenced
    commit: str = "swap"  # | do nothing: INSERT … ON CONFLICT DO NOTHING
    fence: str = "replid"  # | run id
    another_life: str = "seal"  # | refence: a server that restarted or was promoted, if it continues Postgres
    divergence: str = "seal"  # | copy: make Redis as Postgres is and go on in the same epoch
    watermark: str = "chain"  # | number
    chain: str = "rows"  # | requests: digests of the requests, without event ids and versions
    validate: str = "one by one"  # | before the call: each append of a call against the state before it
    hole: str = "seal"  # | wait: for events before ours that no journal holds any more
    helped: str = "rows"  # | ids: ours are committed if our event ids stand at our positions
    doubt: str = "rows"  # | newest: entries above the watermark are committed if the newest one's id is
    call_numbers: bool = True  # calls of one gateway run in order or not at all
    look_again: bool = True  # 'S': identities were forgotten since they were looked up
    relook: bool = True  # what is sequenced again is looked up again
    look_anew: bool = True  # so is what waits while Redis is verified
    evicts: str = "committed"  # | anything: also a stream that is not all committed
    evicted: bool = True  # a hint of a stream's head dies when something later was evicted
    hint_epoch: bool = True  # and with the epoch
    install_epoch: bool = True  # an installation must raise the epoch
    answers: str = "basis"  # | checked: what waited for a commit is asked of Postgres before it is answered
    conflict_waits: bool = True  # until the history that it was decided on is committed
    conflict_looks: bool = True  # and its epoch still stands in Postgres
    mode: str = (
        "swap"  # | in silence: a gateway that reaches no Redis appends directly, in the epoch that it knows
    )
    rests: bool = True  # in direct mode, verdicts that rest on their batch wait until that is committed
    replay_waits: bool = True  # until its original is committed
    own_doubt: bool = True  # the retry of one's own unanswered call stays in doubt
    second_look: bool = True  # a row that Redis is ahead of is read again before an alarm
    torn: bool = True  # a script that failed half-way fences the server
    lengths: str = "all"  # | first: of an append to several streams, the others' lengths are not looked at
    others_cold: bool = True  # a further stream that Redis does not have is cold; else it counts as empty
    condition: str = "script"  # | look: judged by the look at Postgres, outside the script
    look: str = "committed"  # | sequenced: what was looked at counts up to what Redis has sequenced
    look_epoch: bool = True  # a look is of one epoch, and the script sees that the journal tells the rest
    condition_waits: bool = True  # until the event that matches is committed
    tags_epoch: bool = True  # in a new epoch, tags are known of what is sequenced in it
    tags_evicted: bool = True  # and behind what was there when they were evicted
    own_evicted: bool = True  # a stream's own tag is known where no event behind was evicted
    beside: bool = True  # what waits for its look beside the queue is looked up again too
    links: str = "place"  # | call: asked only within a call; | length: what a length says is enough
    link_epoch: bool = True  # until it is committed, a place holds in its epoch
    links_directly: bool = True  # also in direct mode
    link_free: bool = True  # a free one is in its place only behind the one that it was judged on
    link_own: bool = True  # what is replayed is in no place


@dataclass(frozen=True)
class Scenario:
    """Bounds. `faults` names which may happen, `budget` how many in one run; FAULTS has them all."""

    appends: tuple[Append, ...]
    gateways: int = 2
    nodes: int = 1
    faults: tuple[str, ...] = ()
    budget: int = 0
    window: int = 100  # events that an identity hash holds
    epochs: int = 3  # seals stop here: two gateways may seal each other's epochs without end
    cold: bool = False  # streams are missing from Redis until they are touched; else they come back warm
    slow_look: bool = False  # a verification's two looks, and an installation, are steps of their own
    reads: bool = False
    fills: bool = False  # a reader puts a missing stream back in front of Redis
    by_tags: bool = False  # Redis is asked about conditions before Postgres, or after it
    realtime: bool = False  # a conflict and a read know what was acknowledged before they began
    rules: Rules = field(default_factory=Rules)

    @cached_property
    def streams(self) -> int:
        return 1 + max(stream for each in self.appends for stream in each.streams)


FAULTS = {
    "crash": "Redis restarts without its last appends",
    "restore": "Redis is set back to an earlier state without a restart, as a restored machine is",
    "wipe": "Redis loses everything, by a restart or FLUSHALL",
    "promote": "a replica becomes master, whatever the other thinks",
    "demote": "a master becomes a replica of the other and takes its data",
    "tear": "a script fails half-way",
    "evict": "a committed stream is evicted",
    "evict tags": "what Redis knows of tags is evicted",
    "lose redis": "a gateway does not reach Redis for so long that it goes direct",
    "lose reply": "a script ran, its reply is lost",
    "delay call": "a script call arrives late or never",
    "delay install": "an installation arrives late or never",
    "lose commit": "a commit's reply is lost",
    "delay commit": "a commit arrives late or never, while it is sent again",
    "die": "a gateway dies, perhaps with a call or a commit under way",
    "expire": "an append's deadline passes",
}

"""Appends with a condition: refused exactly where a committed event matches, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from gateway.appends import Append, Appended, make_append
from gateway.events import Stream
from gateway.items import Condition, Item, Items, matches, tags_of
from gateway.log.append import conditions
from gateway.log.append.calls import boundary
from gateway.log.append.pending import Look
from gateway.log.log import Log
from gateway.log.redis.scripts import Scripts
from gateway.outcomes import ConditionFailed, Conflict, NotUnique, UnknownPosition
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.log.scripted import Partition
from tests.support.drive import (
    Place,
    Proceed,
    append,
    append_to_all,
    appended,
    claiming,
    crash,
    hold_commits,
    hold_reads,
    interpose,
    lose_replies,
    new_stream,
    new_tenant,
    opened,
    seal,
    wipe_partition,
)

TYPE = "was_placed"


def item(*tags: str, types: Sequence[str] = ()) -> Item:
    return Item(frozenset(("order", each) for each in types), frozenset(tags))


def tagged(
    stream: Stream, *tags: str, condition: Condition | None = None, key: bytes | None = None
) -> Append:
    plain = append(stream, key=key)
    return make_append(
        stream, plain.events, plain.expected, plain.retry, (tags,) if tags else (), condition=condition
    )


def unless(*items: Item, after: Appended | None = None) -> Condition:
    if after is None:
        return Condition(items)
    assert after.last is not None
    return Condition(items, after.last.seq, after.last.mark)


async def test_an_event_behind_the_position_refuses_it(log: Log, place: Place) -> None:
    tenant = new_tenant()
    (first,) = await appended(log, tagged(new_stream(tenant), "course:c1"))
    condition = unless(item("course:c1"))
    assert await log.append(tagged(new_stream(tenant), condition=condition)) == ConditionFailed(
        first.last.seq
    )
    (second,) = await appended(
        log, tagged(new_stream(tenant), "course:c1", condition=unless(item("course:c1"), after=first))
    )
    stale = tagged(new_stream(tenant), condition=unless(item("course:c1"), after=first))
    assert await log.append(stale) == ConditionFailed(second.last.seq)
    await appended(log, tagged(new_stream(), condition=condition))  # another tenant's
    await check_invariants(place)


async def test_items_ask_for_types_and_tags_and_the_aggregate_itself(log: Log) -> None:
    tenant = new_tenant()
    stream = new_stream(tenant)
    (done,) = await appended(log, tagged(stream, "a:1", "b:2"))
    own = f"{stream.aggregate_type}:{stream.key}"
    for fails in (
        item(own), item("a:1", "b:2"), item("a:1", own), item(types=[TYPE]), item("b:2", types=[TYPE, "x"]),
    ):  # fmt: skip
        assert await log.append(tagged(stream, condition=unless(fails))) == ConditionFailed(done.last.seq)
    for holds in (item("a:2"), item("a:1", "b:1"), item(types=["x"]), item("a:1", types=["x"])):
        other = tagged(new_stream(tenant), condition=unless(holds))
        assert type(await log.append(other)) is Appended


async def test_lengths_come_first_and_identities_before_all(log: Log) -> None:
    tenant = new_tenant()
    stream = new_stream(tenant)
    condition = unless(item("a:1"))
    (first,) = await appended(log, tagged(stream, "a:1", condition=condition, key=b"k"))
    again = await log.append(tagged(stream, "a:1", condition=condition, key=b"k"))
    assert again == msgspec.structs.replace(first, replayed=True)
    other = msgspec.structs.replace(tagged(stream, condition=condition), expected=5)
    assert await log.append(other) == Conflict(1)


async def test_a_position_of_another_history_is_found_out(log: Log) -> None:
    tenant = new_tenant()
    (done,) = await appended(log, tagged(new_stream(tenant)))
    assert done.last is not None
    for after, mark in ((done.last.seq + 1, b"abcd"), (done.last.seq, b"abcd")):
        lost = tagged(new_stream(tenant), condition=Condition((item("a:1"),), after, mark))
        assert await log.append(lost) == UnknownPosition()


async def test_of_many_on_one_boundary_one_is_appended(open_log: OpenLog, place: Place) -> None:
    """The race of marten#4594: writers that all decided on the same, through two gateways."""
    logs = [await open_log(), await open_log()]
    for n in range(5):
        tenant = new_tenant()
        await asyncio.gather(*(opened(log, new_stream(tenant)) for log in logs))
        condition = unless(item("seat:a1"))
        asked = [tagged(new_stream(tenant), "seat:a1", condition=condition) for _ in range(64)]
        outcomes = await asyncio.gather(*(logs[k % 2].append(each) for k, each in enumerate(asked)))
        (done,) = [each for each in outcomes if type(each) is Appended]
        assert outcomes.count(ConditionFailed(done.last.seq)) == 63, n
    await check_invariants(place)


async def test_unrelated_appends_refuse_nothing(open_log: OpenLog) -> None:
    logs, tenant = [await open_log(), await open_log()], new_tenant()
    await asyncio.gather(*(opened(log, new_stream(tenant)) for log in logs))

    async def write(n: int) -> list[object]:
        outcomes, last = [], None
        for _ in range(10):
            condition = unless(item(f"own:{n}", "all:1"), item(f"never:{n}"), after=last)
            last = await logs[n % 2].append(
                tagged(new_stream(tenant), f"own:{n}", "all:1", condition=condition)
            )
            outcomes.append(last)
        return outcomes

    told = await asyncio.gather(*(write(n) for n in range(12)))
    assert all(type(each) is Appended for outcomes in told for each in outcomes)


async def test_what_is_not_committed_refuses_nothing_for_good(log: Log, place: Place) -> None:
    """A match that was sequenced and is lost with its epoch was none; one that commits is told of then."""
    tenant = new_tenant()
    await opened(log, new_stream(tenant))
    gate = hold_commits(log, new_stream(tenant))
    matching = log.append(tagged(new_stream(tenant), "a:1"))
    await gate.arrived()
    waiting = log.append(tagged(new_stream(tenant), condition=unless(item("a:1"))))
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.open()
    done = await matching
    assert type(done) is Appended
    assert await waiting == ConditionFailed(done.last.seq)
    await seal(place, log, new_stream(tenant))
    await wipe_partition(log, new_stream(tenant))
    assert await log.append(tagged(new_stream(tenant), condition=unless(item("a:1")))) == ConditionFailed(
        done.last.seq
    )
    await appended(log, tagged(new_stream(tenant), condition=unless(item("a:1"), after=done)))


async def test_what_may_be_committed_is_not_refused_for_want_of_room(
    log: Log, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call was carried out unanswered; meanwhile as many others wait for their looks as may."""
    stream = new_stream()
    await opened(log, stream)
    monkeypatch.setattr(conditions, "WAITING_MAX", 0)
    lose_replies(log, "sequence")
    (done,) = await appended(log, tagged(stream, "a:1", condition=unless(item("a:1"))))
    assert (done.first_version, done.replayed, await log.length(stream)) == (1, False, 1)
    await check_invariants(place)


async def test_a_gateway_that_died_leaves_a_conditional_append_to_another(
    open_log: OpenLog, place: Place
) -> None:
    dead, living = await open_log(), await open_log()
    tenant = new_tenant()
    stream = new_stream(tenant)
    await asyncio.gather(opened(dead, stream), opened(living, stream))
    gate = hold_commits(dead, stream)
    asked = tagged(stream, "a:1", condition=unless(item("a:1")), key=b"k")
    dead.append(asked)
    await gate.arrived()
    await crash(dead)
    again = await living.append(tagged(stream, "a:1", condition=unless(item("a:1")), key=b"k"))
    assert type(again) is Appended
    assert (again.event_ids, again.replayed) == ((asked.append_id,), True)
    assert await living.append(tagged(stream, condition=unless(item("a:1")))) == ConditionFailed(1)
    await check_invariants(place)


@pytest.mark.parametrize("keyed", [True, False])
async def test_what_an_epoch_told_does_not_outlive_it_while_a_condition_is_looked_at(
    open_log: OpenLog, place: Place, *, keyed: bool
) -> None:
    """Its key, or the value that it claims, was looked up before Redis asked for a look at its condition."""
    log, other = await open_log(), await open_log()
    tenant = new_tenant()
    stream, rival = new_stream(tenant), new_stream(tenant)
    await appended(log, append(new_stream(tenant)))
    await seal(place, log, stream)
    gate = hold_reads(log, "last_tagged")

    def one(stream: Stream) -> Append:
        plain = append(stream, key=b"k" if keyed else None)
        claims = () if keyed else claiming(stream, "a").claims
        return make_append(
            stream, plain.events, plain.expected, plain.retry, claims=claims,
            claim_paths=("data",) * len(claims), condition=unless(item("a:1")),
        )  # fmt: skip

    asked = log.append(one(stream))
    await gate.arrived()
    (first,) = await appended(other, one(stream if keyed else rival))
    await seal(place, log, stream)
    gate.open()
    outcome = await asked
    if keyed:
        assert type(outcome) is Appended
        assert (outcome.event_ids, outcome.replayed) == (first.event_ids, True)
    else:
        assert outcome == NotUnique("data", "order", rival.key)
    await check_invariants(place)


async def _statements(log: Log, stream: Stream) -> list[str]:
    """Those by which Postgres is asked about conditions of the stream's tenant from now on."""
    asked: list[str] = []

    async def around(proceed: Proceed, _tenant: bytes, name: str, *args: object) -> object:
        asked.append(name)
        return await proceed()

    interpose(log._reads, "fetch_for", around)
    return asked


async def test_postgres_is_not_asked_about_what_redis_knows(log: Log) -> None:
    tenant = new_tenant()
    (last,) = await appended(log, tagged(new_stream(tenant), "a:1"))
    asked = await _statements(log, new_stream(tenant))
    for _ in range(3):
        condition = unless(item("a:1"), item(f"order:{new_stream().key}"), after=last)
        (last,) = await appended(log, tagged(new_stream(tenant), "a:1", condition=condition))
    assert not asked
    one = tagged(new_stream(tenant), condition=unless(item("a:1"), after=last))
    (last,) = await appended(log, tagged(new_stream(tenant), "a:1"))
    assert await log.append(one) == ConditionFailed(last.last.seq)


async def test_what_postgres_told_of_a_tag_is_remembered(log: Log, place: Place) -> None:
    """In an epoch that began behind the position, the first condition asks, and the next one need not."""
    tenant = new_tenant()
    last, _ = await appended(log, tagged(new_stream(tenant), "a:1"), tagged(new_stream(tenant)))
    await seal(place, log, new_stream(tenant))
    await wipe_partition(log, new_stream(tenant))
    await appended(log, tagged(new_stream(tenant)))
    asked = await _statements(log, new_stream(tenant))
    for _ in range(3):
        await appended(log, tagged(new_stream(tenant), condition=unless(item("a:1"), after=last)))
    assert asked == ["last_tagged"]
    (match,) = await appended(log, tagged(new_stream(tenant), "a:1"))
    refused = tagged(new_stream(tenant), condition=unless(item("a:1"), after=last))
    assert await log.append(refused) == ConditionFailed(match.last.seq)


async def test_a_query_of_long_tags_is_judged_and_not_kept_in_memory(log: Log, place: Place) -> None:
    """However many there are: the body of a request is all that bounds one."""
    tenant, stream = new_tenant(), new_stream()
    await appended(log, tagged(new_stream(tenant)))
    await seal(place, log, new_stream(tenant))
    await wipe_partition(log, new_stream(tenant))
    await appended(log, tagged(new_stream(tenant)))
    asked = await _statements(log, new_stream(tenant))
    long = unless(item("a:" + 500_000 * "x"))
    for _ in range(2):
        await appended(log, tagged(new_stream(tenant), condition=long))
    assert asked == ["last_tagged", "last_tagged"]
    tracemalloc.start()
    try:
        for n in range(20):
            boundary(stream.tenant, (item(f"a:{n}" + 500_000 * "x"),))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


async def test_conditions_count_among_the_bytes_of_a_call(open_log: OpenLog) -> None:
    log = await open_log(sequence_bytes_max=100_000)
    tenant = new_tenant()
    (last,) = await appended(log, tagged(new_stream(tenant)))
    sizes: list[int] = []

    async def measured(proceed: Proceed, _: str, __: object, args: Sequence[object], *___: object) -> object:
        sizes.append(sum(len(each) for each in args if isinstance(each, bytes)))
        return await proceed()

    interpose(log._scripts, "run", measured)
    long = msgspec.structs.replace(unless(item("a:" + 60_000 * "x"), after=last), size_bytes=60_000)
    await appended(log, *[tagged(new_stream(tenant), condition=long) for _ in range(6)])
    assert 60_000 < max(sizes) < 100_000


async def test_another_gateway_s_append_refuses_it(open_log: OpenLog) -> None:
    one, other, tenant = await open_log(), await open_log(), new_tenant()
    await asyncio.gather(*(opened(log, new_stream(tenant)) for log in (one, other)))
    (last,) = await appended(one, tagged(new_stream(tenant), "a:1"))
    (match,) = await appended(other, tagged(new_stream(tenant), "a:1"))
    refused = tagged(new_stream(tenant), condition=unless(item("a:1"), after=last))
    assert await one.append(refused) == ConditionFailed(match.last.seq)


# -- the script


@dataclass(frozen=True, slots=True)
class Asked:
    stream: int
    tags: frozenset[str]
    condition: tuple[tuple[frozenset[str], bool], ...]
    """Items: tags, and whether they name the type."""
    after: int
    looked: int
    """How many of the events since then Postgres was asked about."""
    expected: int
    both: bool
    """An event to each stream; then nothing is asked of lengths."""
    lasts: bool
    """Whether Postgres told of the tags."""


_TAGS = st.frozensets(st.sampled_from(["a:1", "a:2", "b:1"]), max_size=2)
_OWN = ["own:0", "own:1"]
_ITEMS = st.lists(
    st.tuples(st.frozensets(st.sampled_from(["a:1", "a:2", "b:1", *_OWN]), max_size=2), st.booleans()).filter(
        any
    ),
    max_size=2,
).map(tuple)
ASKED = st.builds(
    Asked,
    stream=st.integers(0, 1),
    tags=_TAGS,
    condition=_ITEMS,
    after=st.integers(0, 12),
    looked=st.integers(0, 12),
    expected=st.sampled_from([-1, -1, -1, 0, 1]),
    both=st.booleans(),
    lasts=st.booleans(),
)
History = list[tuple[Stream, frozenset[str]]]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(
        st.tuples(st.lists(ASKED, max_size=5), st.sampled_from(["", "", "streams", "all"])), max_size=6
    ),
    w=st.sampled_from([1, 2, 3, 20_000]),
)
async def test_the_script_finds_the_first_match_and_no_other(
    redis: Redis, calls: list[tuple[list[Asked], str]], w: int
) -> None:
    """Whatever of tags and streams was evicted before a call, and of which buckets the tags are."""
    partition = Partition(redis, Scripts(redis))
    await partition.install(w=w)
    tenant = new_tenant()
    streams = [new_stream(tenant), new_stream(tenant)]
    history: History = []
    for asked, evicted in calls:
        appends, looks, sequenced = [], [], len(history)
        if evicted:
            await _evict(partition, streams, tags=evicted == "all")
        for each in asked:
            one = _made(streams, each)
            look = None
            if each.condition:
                after = min(each.after, sequenced)
                seq = min(after + each.looked, sequenced)
                items = tuple(_item(streams, *named) for named in each.condition)
                one = msgspec.structs.replace(one, condition=Condition(items, after, b""))
                matched = _first(history[:seq], items, after)
                lasts = [_first_last(history[:seq], tag) for tag in tags_of(items)]
                look = Look(
                    1, seq, matched, tuple(lasts) if each.lasts and not matched and seq > after else ()
                )
            appends.append(one)
            looks.append(look)
        answers = await partition.answers(
            *appends, looks=looks, hints=_heads(streams, history, appends), looked_up=2**50
        )
        for one, look, answer in zip(appends, looks, answers, strict=True):
            heads = [sum(stream == of for stream, _ in history) for of in one.streams]
            head = heads[0]
            if one.expected not in (-1, head):
                assert answer.partition(b":")[0] == b"C%d" % head
                continue
            condition = one.condition
            first = 0
            if condition is not None and look is not None:
                first = look.matched or _first(history, condition.items, look.seq)
            if first:
                assert answer == b"K%d" % first
                continue
            assert type(answer) is int or answer[:1] == b"V"
            firsts = b"V" + b",".join([b"%d" % (each + 1) for each in heads])
            assert answer == (head + 1 if one.spread is None else firsts)
            history += [(of, frozenset(one.tags[n] if one.tags else ())) for n, of in enumerate(one.streams)]


async def _evict(partition: Partition, streams: list[Stream], *, tags: bool) -> None:
    keys, meta = partition.keys, await partition.meta()
    tag_hashes = keys.tags if tags else (f"{keys.prefix}none", f"{keys.prefix}neither")
    names = (keys.meta, keys.journal, keys.heads, *tag_hashes, *map(keys.stream, streams))
    reply = await partition.scripts.run("evict", names, (partition.epoch, meta["q"], meta["h"], 0, 0, 512))
    assert reply[0] == b"OK"


def _heads(streams: list[Stream], history: History, appends: list[Append]) -> list[str]:
    """Hints of the streams of each append: what they have, as of any time."""
    lengths = {each: sum(each == of for of, _ in history) for each in streams}
    return [" ".join([f"1.{2**52}:{lengths[each]}" for each in one.streams]) for one in appends]


def _first_last(history: History, tag: str) -> int:
    """The seq of the last event with this tag, 0: none has it."""
    seqs = [
        seq
        for seq, (stream, tags) in enumerate(history, 1)
        if tag in tags or tag == f"{stream.aggregate_type}:{stream.key}"
    ]
    return max(seqs, default=0)


def _made(streams: list[Stream], asked: Asked) -> Append:
    stream, tags = streams[asked.stream], tuple(sorted(asked.tags))
    if not asked.both:
        return msgspec.structs.replace(tagged(stream, *tags), expected=asked.expected)
    plain = append_to_all([stream, streams[1 - asked.stream]])
    told = (tags, ()) if tags else ()
    others = (plain.others,)
    return make_append(stream, plain.events, -1, plain.retry, told, plain.spread, *others)


def _item(streams: list[Stream], tags: frozenset[str], by_type: bool) -> Item:
    own = {name: f"order:{stream.key}" for name, stream in zip(_OWN, streams, strict=True)}
    return item(*(own.get(tag, tag) for tag in tags), types=[TYPE] if by_type else ())


def _first(history: History, items: Items, after: int) -> int:
    for seq, (stream, tags) in enumerate(history, 1):
        if seq > after and matches(items, stream.aggregate_type, stream.key, TYPE, tags):
            return seq
    return 0


async def test_a_look_that_is_further_behind_than_a_window_is_taken_again(redis: Redis) -> None:
    partition = Partition(redis, Scripts(redis))
    await partition.install()
    tenant = new_tenant()
    chain = (await partition.sequence(*(tagged(new_stream(tenant), "b:1") for _ in range(3))))[4]
    one = tagged(new_stream(tenant), condition=unless(item("a:1")))
    await _evict(partition, [], tags=True)
    for seq, answer in ((1, b"L3"), (2, 1)):
        told = await partition.answers(one, told=(3, chain), window=1, looks=[Look(1, seq, 0)])
        assert told == [answer]


async def test_without_a_look_only_a_short_journal_is_read(redis: Redis) -> None:
    partition = Partition(redis, Scripts(redis))
    await partition.install()
    tenant = new_tenant()
    await partition.answers(append(new_stream(tenant), 101), tagged(new_stream(tenant), "b:1"))
    await _evict(partition, [], tags=True)
    for after, answer in ((1, b"L102"), (2, 1)):
        one = tagged(new_stream(tenant), condition=Condition((item("a:1"),), after))
        assert await partition.answers(one, looks=[Look(1, after, 0)]) == [answer]


async def test_what_an_earlier_release_sequenced_ends_what_is_known_of_tags(redis: Redis) -> None:
    """Its script knows nothing of the hashes of tags, nor up to where they are whole."""
    partition = Partition(redis, Scripts(redis))
    await partition.install()
    tenant, keys = new_tenant(), partition.keys
    await partition.answers(tagged(new_stream(tenant), "a:1"))
    before = [(hash_, await redis.hgetall(hash_)) for hash_ in keys.tags]
    whole = await redis.hmget(keys.meta, "turn", "tq")
    await partition.answers(tagged(new_stream(tenant), "a:1"), append(new_stream(tenant), 101))
    for hash_, tags in before:
        await redis.delete(hash_)
        if tags:
            await redis.hset(hash_, mapping=tags)
    await redis.hset(keys.meta, mapping=dict(zip(("turn", "tq"), whole, strict=True)))

    one = tagged(new_stream(tenant), condition=Condition((item("a:1"),), 1))
    assert await partition.answers(one, looks=[Look(1, 1, 0)]) == [b"L103"]
    assert await partition.answers(append(new_stream(tenant))) == [1]
    assert await partition.answers(one, looks=[Look(1, 1, 0)]) == [b"L104"]
    later = tagged(new_stream(tenant), condition=Condition((item("a:1"),), 104))
    assert await partition.answers(later, looks=[Look(1, 104, 0)]) == [1]
    assert await partition.answers(append(new_stream(tenant))) == [1]
    assert await partition.answers(one, looks=[Look(1, 1, 0)]) == [b"L104"]


@pytest.mark.parametrize("asked", [5, 1])
async def test_a_journal_that_does_not_tell_it_all_asks_for_another_look(redis: Redis, asked: int) -> None:
    partition = Partition(redis, Scripts(redis))
    await partition.install(seq=2, chain="c" * 40)
    one = tagged(new_stream(), condition=unless(item("a:1")))
    assert await partition.answers(one, told=(2, "c" * 40), looks=[Look(1, asked, 0)]) == [b"L2"]

"""The scripts by themselves, on a real Redis, called with arguments that a gateway might send."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.appends import AT_LEAST_ONE, next_chain, pack_event
from gateway.log.entries import chain_over, placed_from_journal, stream_entry
from gateway.log.redis.scripts import ForeignReply, RedisTrouble, Scripts
from gateway.log.redis.servers import Server, connect, pack
from tests.log.scripted import Partition
from tests.support.drive import Place, append, event, new_stream, new_tenant, until
from tests.support.drive import ids as event_ids

FENCED = b"FENCED"
NODE = 8  # of so many small events at most is a node of a stream: trimming frees whole ones


@pytest.fixture
async def partition(redis: Redis) -> Partition:
    made = Partition(redis, Scripts(redis))
    assert await made.install() == b"OK"
    return made


# -- sequence


async def test_appends_of_one_call_follow_each_other(partition: Partition) -> None:
    tenant = new_tenant()
    one, two = new_stream(tenant), new_stream(tenant)
    appends = [append(one, 2), append(two), append(one, 3), append(one, expected=5), append(two, expected=1)]
    reply = await partition.sequence(*appends)
    assert reply[7:] == [1, 1, 3, 6, 2]
    chain = ""
    for each, version in zip(appends, reply[7:], strict=True):
        chain = next_chain(chain, version, each.digests)
    _, q, h, q_after, h_after, c, as_of = reply[:7]
    assert (int(q), h, int(q_after), h_after.decode(), int(c), as_of) == (0, b"", 8, chain, 0, b"1.0")
    meta = await partition.meta()
    assert (meta["q"], meta["h"], meta["c"], meta["torn"]) == ("8", chain, "0", "")


async def test_what_serves_its_epoch_only_is_not_in_the_file(partition: Partition, redis: Redis) -> None:
    """Streams, identities and numbers of calls: a server that reads its file begins another epoch."""
    keys, stream = partition.keys, new_stream()
    await partition.answers(append(stream, key=b"k"))
    there = await redis.config_get("dir", "appenddirname")
    (written,) = (Path(there["dir"]) / there["appenddirname"]).glob("*.incr.aof")
    command = rf"\r\n([A-Z]+)\r\n\$\d+\r\n({re.escape(keys.prefix)}\S+)\r\n"
    named = set(re.findall(command.encode(), written.read_bytes()))
    assert named == {(b"XADD", keys.journal.encode()), (b"HSET", keys.heads.encode())}


async def test_the_journal_holds_what_any_gateway_needs_to_commit(partition: Partition) -> None:
    stream = new_stream()
    appends = [append(stream, 2, key=b"k"), append(stream)]
    await partition.answers(*appends)
    (entry,) = await partition.entries(partition.keys.journal)
    placed = placed_from_journal(entry)
    for (there, chain), one, (version, last) in zip(placed, appends, [(1, 2), (3, 3)], strict=True):
        assert (there.stream, there.append_id, there.events) == (stream, one.append_id, one.events)
        assert (there.chosen, there.request_digest) == (one.chosen, one.request_digest)
        assert (there.digests, there.first_version, there.last_seq) == (one.digests, version, last)
        assert chain == chain_over("", [each for each, _ in placed if each.last_seq <= last])
    entries = [stream_entry(each) for each in await partition.entries(partition.keys.stream(stream))]
    packed = [each for one in appends for each in one.packed]
    assert entries == [(n + 1, n + 1, packed[n]) for n in range(3)]


async def test_the_events_of_large_appends_are_numbered_one_after_another(partition: Partition) -> None:
    one, two = (new_stream() for _ in range(2))
    appends = [append(one, 7), append(two, 95), append(one, 2), append(two, 905), append(one, 103)]
    assert await partition.answers(*appends, tail=5000) == [1, 1, 8, 96, 10]
    seq = 0
    versions = {one: 0, two: 0}
    there = {each: await partition.entries(partition.keys.stream(each)) for each in versions}
    for each in appends:
        for packed in each.packed:
            seq, versions[each.stream] = seq + 1, versions[each.stream] + 1
            entry = there[each.stream][versions[each.stream] - 1]
            assert stream_entry(entry) == (versions[each.stream], seq, packed)


async def test_streams_are_written_to_no_file_and_no_replica_and_the_journal_is(
    partition: Partition, redis: Redis
) -> None:
    stream = new_stream()
    key = partition.keys.stream(stream)
    two = append(stream, 2)
    await partition.answers(two)
    names = (partition.keys.meta, key, partition.keys.heads)
    await redis.delete(key)
    filled = (1, "1.2", "", 1, 1, two.packed[0], 2, 2, two.packed[1])
    assert await partition.scripts.run("fill", names, filled) == [b"OK"]
    folder = Path((await redis.config_get("dir"))["dir"]) / "appendonlydir"
    written = b"".join(each.read_bytes() for each in folder.glob("*.incr.aof"))
    assert pack(("XADD", partition.keys.journal))[4:] in written
    assert pack(("XADD", key))[4:] not in written


async def test_an_identity_that_comes_twice_in_a_call_is_claimed_once(partition: Partition) -> None:
    stream = new_stream()
    answers = await partition.answers(
        append(stream, 2, key=b"k"),
        append(stream, 2, key=b"k"),
        append(stream, key=b"k", body=b"other"),
        append(stream),
    )
    assert answers == [1, b"D2:2", b"M", 3]
    assert await partition.answers(append(stream, 2, key=b"k")) == [b"D2:2"]
    assert await partition.answers(append(stream, key=b"k", body=b"other")) == [b"M"]


async def test_an_append_that_is_sent_again_is_recognized_by_its_minted_id(partition: Partition) -> None:
    stream = new_stream()
    one = append(stream, 3)
    assert await partition.answers(one, one) == [1, b"D3:3"]
    assert await partition.answers(one) == [b"D3:3"]


async def test_a_claim_has_the_digest_of_a_request_that_names_an_identity_and_of_no_other(
    partition: Partition, redis: Redis
) -> None:
    keyed, plain = append(new_stream(), key=b"k"), append(new_stream())
    await partition.answers(keyed, plain)
    claims = await redis.hgetall(partition.keys.identities[0])
    told = dict.fromkeys(keyed.identities, b"1:1:" + keyed.request_digest)
    assert claims == told | dict.fromkeys(plain.identities, b"2:1:")


async def test_identities_of_two_appends_are_never_one_retry(partition: Partition) -> None:
    stream = new_stream()
    ids = [event_ids(append(stream))[0] for _ in range(2)]
    await partition.answers(append(stream, event_ids=(ids[0],)), append(stream, event_ids=(ids[1],)))
    assert await partition.answers(append(stream, event_ids=tuple(ids))) == [b"M"]
    assert await partition.answers(append(stream, event_ids=(ids[0],), key=b"new")) == [b"M"]


async def test_expected_lengths_are_judged_on_what_earlier_appends_of_the_call_leave(
    partition: Partition,
) -> None:
    stream = new_stream()
    answers = await partition.answers(
        append(stream, expected=AT_LEAST_ONE),
        append(stream, expected=1),
        append(stream, 2, expected=0),
        append(stream, expected=0),
        append(stream, expected=AT_LEAST_ONE),
        append(stream, expected=3),
    )
    assert answers == [b"C0", b"C0", 1, b"C2", 3, 4]


async def test_a_full_window_holds_back_the_later_appends_of_the_stream_too(partition: Partition) -> None:
    tenant = new_tenant()
    one, two = new_stream(tenant), new_stream(tenant)
    appends = [append(one, 3), append(one, 4), append(one), append(two, 2), append(two)]
    assert await partition.answers(*appends, window=5) == [1, b"B", b"B", 1, b"B"]
    assert await partition.answers(append(one), window=5) == [b"B"]


async def test_an_append_larger_than_the_window_goes_when_nothing_is_uncommitted(
    partition: Partition,
) -> None:
    stream = new_stream()
    large, next_one = append(stream, 7), append(stream, 7)
    assert await partition.answers(large, next_one, window=5) == [1, b"B"]
    chain = next_chain("", 1, large.digests)
    assert await partition.answers(next_one, window=5, told=(7, chain)) == [8]


async def test_a_stream_that_is_not_here_is_cold_never_new(partition: Partition) -> None:
    stream = new_stream()
    cold = await partition.answers(append(stream), append(stream, expected=0), hints=["", ""])
    assert cold == [b"X", b"X"]
    assert await partition.answers(append(stream), hints=["1.1:41"]) == [42]
    assert await partition.answers(append(stream, expected=42), hints=[""]) == [43]


@pytest.mark.parametrize("hint", ["1.2:5", "2.3:5", "1:5", "1.3:", "nonsense"])
async def test_a_hint_from_before_an_eviction_or_of_another_epoch_is_no_hint(
    partition: Partition, hint: str
) -> None:
    await partition.redis.hset(partition.keys.meta, "e", "3")
    assert await partition.answers(append(new_stream()), hints=[hint]) == [b"X"]


async def test_a_head_outlives_its_stream(partition: Partition) -> None:
    """What is sequenced and not committed may be in it, which no hint knows."""
    stream = new_stream()
    await partition.answers(append(stream, 2))
    await partition.redis.delete(partition.keys.stream(stream))
    assert await partition.answers(append(stream)) == [3]


@pytest.mark.parametrize("left", [None, {"": "7"}])
async def test_lost_heads_are_never_taken_for_streams_without_events(
    partition: Partition, left: dict[str, str] | None
) -> None:
    stream, heads = new_stream(), partition.keys.heads
    await partition.answers(append(stream))
    await partition.redis.delete(heads)
    if left is not None:
        await partition.redis.hset(heads, mapping=left)
    assert await partition.sequence(append(stream)) == [FENCED, b"torn"]
    assert (await partition.meta())["torn"] == "heads"
    assert len(await partition.entries(partition.keys.stream(stream))) == 1


async def test_appends_that_are_refused_are_not_in_the_journal(partition: Partition) -> None:
    stream = new_stream()
    appends = [append(stream, 2), append(stream, expected=9), append(stream, 20), append(stream, expected=0)]
    assert await partition.answers(appends[1], *appends, append(stream)) == [b"C0", 1, b"C2", 3, b"C22", 23]
    (entry,) = await partition.entries(partition.keys.journal)
    assert [
        (placed.append_id, placed.first_version, placed.last_seq) for placed, _ in placed_from_journal(entry)
    ][:2] == [(appends[0].append_id, 1, 2), (appends[2].append_id, 3, 22)]


async def test_what_is_here_outweighs_a_hint(partition: Partition) -> None:
    stream = new_stream()
    await partition.answers(append(stream, 2))
    assert await partition.answers(append(stream), hints=["1.1:77"]) == [3]


async def test_a_call_that_is_late_does_nothing(partition: Partition) -> None:
    stream = new_stream()
    await partition.answers(append(stream), number=5)
    for number in (4, 5):
        assert await partition.sequence(append(stream), number=number) == [FENCED, b"late"]
    assert (await partition.meta())["q"] == "1"
    assert await partition.answers(append(stream), number=1, caller="other") == [2]
    assert await partition.answers(append(stream), number=6) == [3]


async def test_identities_are_remembered_for_a_window_and_then_asked_of_postgres(redis: Redis) -> None:
    partition = Partition(redis, Scripts(redis))
    await partition.install(w=4)
    stream = new_stream()
    keyed = [append(stream, key=b"k%d" % n) for n in range(12)]
    for one in keyed:
        (version,) = await partition.answers(one, looked_up=12)
    assert version == 12
    # q = 12: the buckets of 8…11 and of 12 are remembered, the rest is forgotten.
    for n in (7, 8, 9, 10, 11):
        assert await partition.answers(append(stream, key=b"k%d" % n), looked_up=0) == [b"D%d:1" % (n + 1)]
    assert await partition.answers(append(stream, key=b"k0"), append(stream), looked_up=7) == [b"S", b"S"]
    assert await partition.answers(append(stream, key=b"k0"), looked_up=8) == [13]


async def test_a_call_that_passes_several_windows_forgets_only_what_is_older(redis: Redis) -> None:
    partition = Partition(redis, Scripts(redis))
    await partition.install(w=4)
    tenant = new_tenant()
    one, two = new_stream(tenant), new_stream(tenant)
    await partition.answers(append(one, key=b"old"))
    last = append(two, 3, key=b"new")
    assert await partition.answers(append(one, 6), append(one, 9), last) == [2, 8, 1]
    assert await partition.answers(last, looked_up=0) == [b"D19:3"]
    assert await partition.answers(append(one, key=b"old"), looked_up=0) == [b"S"]
    forgotten, kept = [await redis.hgetall(key) for key in partition.keys.identities]
    assert len({**forgotten, **kept}) >= 2
    assert not set(forgotten) & set(kept)


async def test_an_append_with_a_thousand_identities_is_remembered_whole(partition: Partition) -> None:
    stream = new_stream()
    chosen = tuple(event().id for _ in range(1000))
    many = [append(stream, event_ids=chosen[n * 200 : n * 200 + 200]) for n in range(5)]
    whole = append(stream, event_ids=tuple(event().id for _ in range(1000)))
    assert await partition.answers(*many, whole) == [1, 201, 401, 601, 801, 1001]
    assert await partition.answers(*many, whole) == [
        b"D200:200", b"D400:200", b"D600:200", b"D800:200", b"D1000:200", b"D2000:1000",
    ]  # fmt: skip


async def test_numbers_stay_whole_where_lua_would_write_an_exponent(redis: Redis) -> None:
    partition = Partition(redis, Scripts(redis))
    seq = 10**15
    await partition.install(seq=seq, chain="c" * 40)
    stream = new_stream()
    one = append(stream, 2, key=b"k")
    reply = await partition.sequence(one, append(stream), hints=[f"1.{seq}:{seq - 1}"] * 2, looked_up=seq)
    assert [int(reply[1]), int(reply[3]), int(reply[5])] == [seq, seq + 3, seq]
    assert reply[7:] == [seq, seq + 2]
    assert await partition.answers(one) == [b"D%d:2" % (seq + 2)]
    assert [each[0] for each in await partition.entries(partition.keys.stream(stream))] == [
        b"%d-0" % (seq + n) for n in range(3)
    ]
    assert (await partition.meta())["q"] == str(seq + 3)
    chain = next_chain("c" * 40, seq, one.digests)
    assert (await partition.sequence(told=(seq + 2, chain)))[5] in (seq + 2, b"%d" % (seq + 2))


async def test_the_watermark_moves_only_where_the_chains_are_equal(partition: Partition) -> None:
    stream = new_stream()
    one, two = append(stream, 2), append(stream)
    await partition.answers(one, two)
    first = next_chain("", 1, one.digests)
    second = next_chain(first, 3, two.digests)
    for seq, chain, c in [
        (2, second, 0), (3, first, 0), (1, first, 0), (2, first, 2), (2, second, 2), (3, second, 3),
        (2, first, 3),
    ]:  # fmt: skip
        reply = await partition.sequence(told=(seq, chain))
        assert int(reply[5]) == c
    assert await partition.sequence(told=(4, second)) == [FENCED, b"behind"]
    assert (await partition.meta())["ch"] == second


async def test_a_stream_keeps_its_tail(partition: Partition) -> None:
    stream, chain = new_stream(), ""
    for n in range(1, 101):
        one = append(stream)
        await partition.answers(one, tail=8, told=(n - 1, chain))
        chain = next_chain(chain, n, one.digests)
    left = [stream_entry(each)[0] for each in await partition.entries(partition.keys.stream(stream))]
    assert left == list(range(left[0], 101))
    assert 8 <= len(left) < 8 + 2 + NODE
    assert await partition.answers(append(stream, expected=100), tail=8) == [101]


async def test_a_stream_keeps_what_is_not_committed(partition: Partition) -> None:
    stream, chain = new_stream(), ""
    for n in range(1, 101):
        one = append(stream)
        await partition.answers(one, tail=1, told=(min(n - 1, 60), chain))
        chain = next_chain(chain, n, one.digests) if n <= 60 else chain
    left = [stream_entry(each)[0] for each in await partition.entries(partition.keys.stream(stream))]
    assert set(left) >= set(range(61, 101))
    assert len(left) < 40 + NODE


# -- identity of the server and of the partition


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"epoch": "2"}, b"epoch"),
        ({"fence": "0" * 40}, b"fence"),
        ({"torn": "1"}, b"torn"),
        (None, b"missing"),
    ],
)
async def test_what_contradicts_the_caller_fences_every_script(
    partition: Partition, fields: dict[str, str] | None, reason: bytes
) -> None:
    stream, keys = new_stream(), partition.keys
    await partition.answers(append(stream))
    await (partition.redis.hset(keys.meta, mapping=fields) if fields else partition.redis.delete(keys.meta))
    before = await partition.meta()
    key = keys.stream(stream)
    assert await partition.sequence(append(stream)) == [FENCED, reason]
    read = await partition.scripts.run("read", (keys.meta, keys.journal, key), (1, 0, "", 1, 1, 9, 9, 0))
    assert read == [FENCED, reason]
    assert await partition.scripts.run("journal", (keys.meta, keys.journal), (1, 0, 9)) == [FENCED, reason]
    assert await partition.scripts.run("fill", (keys.meta, key, keys.heads), (1, "1.1", "")) == [
        FENCED,
        reason,
    ]
    assert await partition.meta() == before
    assert len(await partition.entries(key)) == 1


async def test_an_error_between_the_writes_leaves_the_partition_torn(partition: Partition) -> None:
    stream, keys = new_stream(), partition.keys
    await partition.redis.set(keys.journal, "no stream")
    with pytest.raises(RedisTrouble, match="WRONGTYPE"):
        await partition.sequence(append(stream))
    meta = await partition.meta()
    assert (meta["torn"], meta["q"], meta["h"]) == ("1", "0", "")
    assert await partition.sequence(append(stream)) == [FENCED, b"torn"]


async def test_an_error_before_the_writes_leaves_nothing(partition: Partition) -> None:
    stream, keys = new_stream(), partition.keys
    await partition.redis.set(keys.heads, "no hash")
    with pytest.raises(RedisTrouble, match="WRONGTYPE"):
        await partition.sequence(append(new_stream(stream.tenant)), append(stream))
    meta = await partition.meta()
    assert (meta["torn"], meta["q"]) == ("", "0")
    assert await partition.entries(keys.journal) == []


async def test_an_installation_needs_a_later_epoch_and_the_server_that_was_inspected(
    partition: Partition,
) -> None:
    assert await partition.install(epoch=1) == b"STALE"
    args = (2, "0" * 40, 0, "", 1)
    assert await partition.scripts.run("install", (partition.keys.meta, partition.keys.heads), args) == [
        b"STALE"
    ]
    assert await partition.install(epoch=3, seq=7, chain="h") == b"OK"
    meta = await partition.meta()
    assert (meta["q"], meta["c"], meta["h"], meta["ch"], meta["e"]) == ("7", "7", "h", "h", "0")
    assert await partition.install(epoch=2) == b"STALE"


async def test_an_inspection_tells_the_chain_where_postgres_stands(partition: Partition) -> None:
    stream, keys = new_stream(), partition.keys
    appends = [append(stream), append(stream), append(stream)]
    await partition.answers(*appends)
    chains = [""]
    for n, one in enumerate(appends):
        chains.append(next_chain(chains[-1], n + 1, one.digests))
    await partition.sequence(told=(1, chains[1]))
    for seq, chain in [(1, chains[1]), (2, chains[2]), (3, chains[3]), (4, ""), (0, "")]:
        reply = await partition.scripts.run("inspect", (keys.meta, keys.journal, keys.heads), (1, seq))
        assert reply[-3].decode() == chain, seq
    reply = await partition.scripts.run("inspect", (keys.meta, keys.journal, keys.heads), (2, 3))
    assert reply[-3] == b""


# -- fill


async def test_a_stream_is_filled_in_front_of_what_is_here(partition: Partition) -> None:
    stream, keys = new_stream(), partition.keys
    await partition.answers(append(stream, 2), hints=["1.1:3"])
    older = [event() for _ in range(3)]
    args: list[Any] = [1, "1.1", "4"]
    for n, each in enumerate(older):
        args += [n + 1, 100 + n, pack_event(each)]
    assert await partition.scripts.run("fill", (keys.meta, keys.stream(stream), keys.heads), args) == [b"OK"]
    entries = [stream_entry(each) for each in await partition.entries(keys.stream(stream))]
    assert [each[0] for each in entries] == [1, 2, 3, 4, 5]
    assert [each[2] for each in entries[:3]] == [pack_event(each) for each in older]
    assert await partition.answers(append(stream, expected=5)) == [6]


@pytest.mark.parametrize(("as_of", "first"), [("1.4", "4"), ("2.5", "4"), ("1.5", "3"), ("1.5", "")])
async def test_a_stream_that_changed_meanwhile_is_not_filled(
    partition: Partition, as_of: str, first: str
) -> None:
    stream, keys = new_stream(), partition.keys
    await partition.answers(append(stream), hints=["1.5:3"])
    await partition.redis.hset(keys.meta, "e", "5")  # something was evicted
    args = (1, as_of, first, 3, 100, pack_event(event()))
    assert await partition.scripts.run("fill", (keys.meta, keys.stream(stream), keys.heads), args) == [
        b"STALE"
    ]
    assert len(await partition.entries(keys.stream(stream))) == 1


async def test_a_stream_that_was_deleted_is_filled_up_to_what_was_sequenced_or_not_at_all(
    partition: Partition,
) -> None:
    stream, keys = new_stream(), partition.keys
    one = append(stream, 2)
    await partition.answers(one)
    await partition.redis.delete(keys.stream(stream))
    names = (keys.meta, keys.stream(stream), keys.heads)
    filled: list[Any] = [1, "1.1", "", 1, 1, one.packed[0]]
    assert await partition.scripts.run("fill", names, filled) == [b"STALE"]
    assert await partition.scripts.run("fill", names, [*filled, 2, 2, one.packed[1]]) == [b"OK"]
    assert await partition.answers(append(stream, expected=2), hints=[""]) == [3]


async def test_a_stream_that_was_filled_has_a_head(partition: Partition) -> None:
    stream, keys = new_stream(), partition.keys
    args = (1, "1.1", "", 7, 100, pack_event(event()))
    names = (keys.meta, keys.stream(stream), keys.heads)
    assert await partition.scripts.run("fill", names, args) == [b"OK"]
    assert await partition.answers(append(stream), hints=[""]) == [8]


# -- replies


async def test_a_reply_of_another_call_is_refused_and_its_connection_closed(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    await partition.sequence()
    server = partition.scripts.servers
    (connection,) = server._idle
    real = server.send

    async def other(*args: Any) -> list[Any]:
        ((_, *reply),) = await real(*args)
        return [[b"another-0", *reply]]

    with monkeypatch.context() as patch:
        patch.setattr(server, "send", other)
        with pytest.raises(ForeignReply):
            await partition.sequence()
    assert not connection.is_connected
    assert (await partition.sequence())[0] == b"OK"


NEVER_ANSWERED = pack(("BLPOP", "a-list-that-nobody-fills", 0))


async def test_a_call_that_is_cancelled_leaves_no_connection_out_of_step(partition: Partition) -> None:
    await partition.sequence()
    server = partition.scripts.servers
    (connection,) = server._idle
    call = asyncio.ensure_future(server.send(NEVER_ANSWERED))
    await until(lambda: not server._idle)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not connection.is_connected
    assert (await partition.sequence())[0] == b"OK"


async def test_a_call_that_is_not_answered_in_time_is_trouble_and_its_connection_is_closed(
    place: Place,
) -> None:
    impatient = connect(place.redis_url, 1.5, 1)
    server = Server(impatient)
    await server.send(pack(("PING",)))
    (connection,) = server._idle
    with pytest.raises(RedisError, match=r"no answer within 1\.5 s"):
        await server.send(NEVER_ANSWERED)
    assert not connection.is_connected
    await impatient.aclose()


async def test_a_server_that_restarted_costs_one_call_and_not_one_for_each_connection(
    partition: Partition, redis: Redis
) -> None:
    server = partition.scripts.servers
    known = await asyncio.gather(*(server.send(pack(("CLIENT", "ID"))) for _ in range(5)))
    assert len(server._idle) == 5
    for (client,) in known:
        await redis.client_kill_filter(_id=client)
    with pytest.raises(RedisTrouble):
        await partition.sequence()
    assert not server._idle
    assert (await partition.sequence())[0] == b"OK"


async def test_two_callers_never_share_a_nonce(redis: Redis) -> None:
    assert Scripts(redis).caller != Scripts(redis).caller

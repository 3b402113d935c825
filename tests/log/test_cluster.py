"""A Redis Cluster: every partition at the node of its slot, wherever that is, and while it moves."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.connection import SSLConnection
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from gateway.config import Config
from gateway.log.epoch.partition import Partition
from gateway.log.log import Log
from gateway.log.redis import servers as redis_servers
from gateway.log.redis.announcements import Announcements
from gateway.log.redis.cluster import Cluster, open_redis
from gateway.log.redis.keys import partition_keys
from gateway.log.redis.scripts import NotRun, Scripts
from gateway.log.redis.servers import pack
from gateway.operations.doctor import diagnose
from gateway.operations.findings import Verdict
from gateway.operations.place import open_place
from gateway.outcomes import NotCommitted, OutcomeUnknown
from gateway.partitions import partition_of
from gateway.pools import CannotStart, check_redis
from gateway.tasks import ended
from tests.log.conftest import PARTITIONS, OpenLog
from tests.log.invariants import check_invariants
from tests.log.load import Load
from tests.operations.filled import audited
from tests.support.drive import (
    WITHIN_S,
    Place,
    append,
    appended,
    lane,
    new_stream,
    new_tenant,
    opened,
    tally,
    until,
)
from tests.support.redis_cluster import NODE_TIMEOUT_MS, Node, RedisNodes, nodes_in
from tests.support.redis_cluster import until as eventually
from tests.support.servers import Server, open_folder


@pytest.fixture(scope="module")
async def shared_nodes() -> AsyncIterator[RedisNodes]:
    """Three masters, each with a replica."""
    with open_folder() as folder:
        nodes = nodes_in(folder, replicas=(0, 1, 2))
        try:
            await nodes.start()
            yield nodes
        finally:
            nodes.close()


@pytest.fixture
async def nodes(shared_nodes: RedisNodes) -> AsyncIterator[RedisNodes]:
    """Well again after each test, whichever server leads by then."""
    yield shared_nodes
    for node in shared_nodes.nodes:
        node.server.resume()
        await node.server.start()
    await eventually(shared_nodes.well)


@pytest.fixture
def place(place: Place, nodes: RedisNodes) -> Place:
    return Place(place.postgres_url, nodes.url)


@asynccontextmanager
async def client_of(nodes: RedisNodes, timeout_s: float) -> AsyncIterator[Cluster]:
    client = open_redis(nodes.url, timeout_s, 8)
    assert isinstance(client, Cluster)
    yield client
    await client.aclose()


@pytest.fixture
async def cluster(nodes: RedisNodes) -> AsyncIterator[Cluster]:
    async with client_of(nodes, 2) as client:
        yield client


def slot_of(log: Log, p: int) -> int:
    return key_slot(partition_keys(log.instance.id, p, 1).meta.encode())


def tenant_in(partition: int) -> bytes:
    while partition_of(tenant := new_tenant(), PARTITIONS) != partition:
        pass
    return tenant


async def in_redis(*logs: Log) -> None:
    """Until every partition is, for each of the gateways; a cluster may elect other masters first."""
    await until(lambda: all(each.partition.in_redis for log in logs for each in log._lanes), 60)


async def epoch_after(epoch: int, partition: Partition) -> None:
    await until(lambda: partition.epoch > epoch, 60)


async def a_master_besides(nodes: RedisNodes, holder: Node) -> Node:
    for each in nodes.nodes:
        if each is not holder and await nodes.leads(each):
            return each
    raise AssertionError("there is no other master")


# -- where things are


async def test_partitions_are_spread_over_the_masters_and_each_takes_appends(
    open_log: OpenLog, place: Place, nodes: RedisNodes
) -> None:
    one, two = await open_log(), await open_log()
    streams = [new_stream(tenant_in(p)) for p in range(PARTITIONS)]
    for log in (one, two):
        await appended(log, *(append(stream, 3) for stream in streams))
    holders = {(await nodes.holder(slot_of(one, p))).port for p in range(PARTITIONS)}
    assert len(holders) == 3
    assert [await two.length(stream) for stream in streams] == [6] * PARTITIONS
    assert await one.ready() is None
    await check_invariants(place)


async def test_a_cluster_is_found_though_the_first_nodes_named_do_not_answer(
    nodes: RedisNodes, cluster: Cluster
) -> None:
    late = open_redis(f"redis+cluster://127.0.0.1:1,127.0.0.1:{nodes.nodes[4].port}", 2, 8)
    assert isinstance(late, Cluster)
    for n in range(20):
        key = f"sluice:1:test:{{{n}}}:found"
        assert await cluster.send(pack(("SET", key, n)), 1, key) == [b"OK"]
        assert await late.send(pack(("GET", key)), 1, key) == [str(n).encode()]
        await late.send(pack(("DEL", key)), 1, key)
    assert len(await late.all()) == 6
    await until(lambda: not late._asking)
    await late.aclose()


async def test_a_cluster_is_found_while_the_first_node_named_is_silent(nodes: RedisNodes) -> None:
    """However long an answer may take: who waited for it would not find out that a master is away."""
    master = await nodes.holder(0)
    (silent,) = nodes.replicas(master)
    silent.server.pause()
    late = open_redis(f"redis+cluster://127.0.0.1:{silent.port},127.0.0.1:{master.port}", 600, 8)
    assert isinstance(late, Cluster)
    async with asyncio.timeout(WITHIN_S):
        assert len(await late.all()) in (5, 6)  # as a master that may have noticed tells
    await late.aclose()


async def test_a_caller_that_gives_up_while_it_learns_where_slots_are_leaves_that_to_the_next() -> None:
    asked, told = asyncio.Event(), asyncio.Event()

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while sent := await reader.read(1000):
            if b"SLOTS" in sent:
                asked.set()
                await told.wait()
                port = writer.get_extra_info("sockname")[1]
                writer.write(b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % port)
            else:
                writer.write(b"+OK\r\n" * sent.count(b"*"))
        writer.close()

    listening = await asyncio.start_server(node, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    cluster = open_redis(f"redis+cluster://127.0.0.1:{port}", 5.0, 2)
    assert isinstance(cluster, Cluster)
    async with asyncio.timeout(20):
        gives_up = asyncio.create_task(cluster.holding("key"))
        await asked.wait()
        await ended((gives_up,))
        told.set()
        assert (await cluster.holding("key")).name == f"127.0.0.1:{port}"
        await cluster.aclose()
        listening.close()
        await listening.wait_closed()


async def test_a_node_that_is_in_no_cluster_yet_is_not_believed(nodes: RedisNodes, tmp_path: Path) -> None:
    """It serves, and says of itself that no server has any slot."""
    (alone,) = nodes_in(tmp_path, masters=1).nodes
    await alone.server.start()
    url = f"redis+cluster://127.0.0.1:{alone.port}"
    try:
        for _ in range(20):
            redis = open_redis(f"{url},127.0.0.1:{nodes.nodes[0].port}", 2, 8)
            assert len(await redis.all()) == 6
            await redis.aclose()
        redis = open_redis(url, 2, 8)
        with pytest.raises(RedisConnectionError, match="the node knows no slots"):
            await redis.all()
        await redis.aclose()
    finally:
        alone.server.kill()


@pytest.fixture
async def patient(nodes: RedisNodes) -> AsyncIterator[Cluster]:
    """Waits for an answer for ten minutes, unless it is told to give up."""
    async with client_of(nodes, 600) as client:
        yield client


def _get(key: str) -> bytes:
    return pack(("GET", key))


async def test_a_call_that_hangs_is_given_up_though_no_node_tells_any_more_where_it_went(
    nodes: RedisNodes, patient: Cluster
) -> None:
    key = "sluice:1:test:{1}:hangs"
    server = await patient.holding(key)
    for node in nodes.nodes:
        node.server.pause()
    call = asyncio.create_task(patient.send(_get(key), 1, key))
    await until(lambda: bool(server._under_way))
    patient._doubtful, patient._asked_at = True, float("-inf")  # as by whatever was refused a while ago
    (looked,) = await patient.look([(key, _get(key))], 600)
    assert "no node answers where slots are" in str(looked)
    patient.give_up()
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(RedisTimeoutError):
            await call


async def test_a_call_that_hangs_ends_when_another_node_leads(nodes: RedisNodes, patient: Cluster) -> None:
    key = "sluice:1:test:{1}:hangs"
    server, master = await patient.holding(key), await nodes.holder(key_slot(key.encode()))
    master.server.pause()
    call = asyncio.create_task(patient.send(_get(key), 1, key))
    await until(lambda: bool(server._under_way))
    await eventually(lambda: _has_left(patient, server))
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(RedisTimeoutError):
            await call


async def _has_left(cluster: Cluster, server: redis_servers.Server) -> bool:
    try:
        return server not in await cluster.all()
    except (RedisError, OSError):  # on a busy machine none of the nodes may answer in time
        return False


async def test_each_node_is_spoken_to_as_the_url_says() -> None:
    cluster = open_redis("rediss+cluster://sluice:p%40ss@one:7000,[::1]:7001,three?ssl_cert_reqs=none", 2, 8)
    assert isinstance(cluster, Cluster)
    assert [each.name for each in cluster._seeds] == ["one:7000", "[::1]:7001", "three:6379"]
    for each in (*cluster._seeds, cluster._server("another", 7003)):
        pool = each.client.connection_pool
        assert issubclass(pool.connection_class, SSLConnection)
        assert {name: pool.connection_kwargs[name] for name in ("username", "password", "host")} == {
            "username": "sluice", "password": "p@ss", "host": each.host,
        }  # fmt: skip
    await cluster.aclose()


async def test_commands_about_many_keys_are_answered_in_their_order(cluster: Cluster) -> None:
    keys = [f"sluice:1:test:{{{n}}}:order" for n in range(30)]
    asked = [(key, pack(("ECHO", key))) for key in keys]
    looked = await cluster.look(asked, 2)
    assert [reply for reply, _ in looked] == [key.encode() for key in keys]
    assert len({history for _, history in looked}) > 1, "each of its own server"


async def test_what_one_gateway_commits_is_announced_to_others(nodes: RedisNodes, open_log: OpenLog) -> None:
    log = await open_log()
    clients = [open_redis(nodes.url, 2, 8) for _ in range(2)]
    hearing, telling = (Announcements(each, log.instance.id) for each in clients)
    tasks = [asyncio.create_task(each) for each in (hearing.run_listening(), telling.run_telling())]
    heard: list[int | None] = []

    async def told() -> bool:
        telling.committed(5)
        return 5 in heard

    with hearing.hearing(heard.append):
        await until(told)
    await ended(tasks)
    for each in clients:
        await each.aclose()


async def test_a_plain_url_of_a_node_keeps_a_gateway_from_starting(nodes: RedisNodes, place: Place) -> None:
    url = f"redis://127.0.0.1:{nodes.nodes[0].port}"
    redis = open_redis(url, 2, 8)
    config = Config(redis_url=url, postgres_url=place.postgres_url)
    with pytest.raises(CannotStart, match=r"is a node of a cluster: let SLUICE_REDIS_URL begin with redis\+"):
        await check_redis(redis, config)
    await redis.aclose()


async def test_a_node_that_may_drop_keys_keeps_a_gateway_from_starting(
    nodes: RedisNodes, place: Place, cluster: Cluster
) -> None:
    config = Config(redis_url=nodes.url, postgres_url=place.postgres_url)
    await check_redis(cluster, config)
    replica = nodes.nodes[5]
    await replica.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(CannotStart, match=f"Redis at 127.0.0.1:{replica.port} has maxmemory-policy"):
        await check_redis(cluster, config)
    await replica.call("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_a_doctor_looks_at_every_node(nodes: RedisNodes, place: Place) -> None:
    async with open_place(place.postgres_url, nodes.url, 2) as there:
        told = await diagnose(there, 600, 1)
        of_redis = [each for each in told.findings if each.server.startswith("redis ")]
        assert {each.server for each in of_redis} == {f"redis 127.0.0.1:{node.port}" for node in nodes.nodes}
        assert not [each for each in of_redis if each.verdict is Verdict.FAULT]
    async with open_place(place.postgres_url, f"redis://127.0.0.1:{nodes.nodes[0].port}", 2) as there:
        told = await diagnose(there, 600, 1)
        (found,) = (each for each in told.findings if each.name == "cluster")
        assert (found.found, found.verdict) == ("a node of one", Verdict.FAULT)
        assert "redis+cluster://" in found.means


async def test_an_audit_finds_every_partition_in_order(
    open_log: OpenLog, nodes: RedisNodes, place: Place
) -> None:
    log = await open_log()
    await appended(log, *(append(new_stream(tenant_in(p)), 3) for p in range(PARTITIONS)))
    async with open_place(place.postgres_url, nodes.url, 2) as there:
        report = await audited(there, deep=True)
    assert report.ok


# -- refusals of a node


async def test_a_call_that_comes_to_the_wrong_node_runs_once_at_the_right_one(
    nodes: RedisNodes, cluster: Cluster
) -> None:
    key = "sluice:1:test:{moved}:count"
    slot = key_slot(key.encode())
    right, wrong = await nodes.holder(slot), await a_master_besides(nodes, await nodes.holder(slot))
    await cluster.holding(key)
    cluster._holders[slot] = cluster._server("127.0.0.1", wrong.port)
    assert await cluster.send(pack(("INCR", key)), 1, key) == [1]
    assert (await cluster.holding(key)).name == f"127.0.0.1:{right.port}"
    assert await cluster.send(pack(("INCR", key)), 1, key) == [2]
    await cluster.send(pack(("DEL", key)), 1, key)


async def test_a_call_about_keys_that_have_all_gone_ahead_follows_them(
    nodes: RedisNodes, cluster: Cluster
) -> None:
    key = "sluice:1:test:{asked}:count"
    slot = key_slot(key.encode())
    source = await nodes.holder(slot)
    target = await a_master_besides(nodes, source)
    await cluster.send(pack(("INCR", key)), 1, key)
    asked = []

    async def meanwhile() -> None:
        asked.append(await cluster.send(pack(("INCR", key)), 1, key))
        assert (await cluster.holding(key)).name == f"127.0.0.1:{source.port}"

    assert await nodes.move_slot(slot, target, meanwhile=meanwhile) == 1
    assert asked == [[2]]
    assert await cluster.send(pack(("INCR", key)), 1, key) == [3]
    await cluster.send(pack(("DEL", key)), 1, key)


async def test_a_script_that_is_sent_ahead_to_a_node_without_it_is_loaded_there(
    nodes: RedisNodes, cluster: Cluster
) -> None:
    meta = "sluice:1:test:{loaded}:meta"
    slot = key_slot(meta.encode())
    target = await a_master_besides(nodes, await nodes.holder(slot))
    scripts = Scripts(cluster)
    await cluster.send(pack(("HSET", meta, "epoch", "7")), 1, meta)
    seen = []

    async def meanwhile() -> None:
        await target.call("SCRIPT", "FLUSH")
        seen.append((await scripts.run("inspect", (meta, meta, meta), (1, 0)))[2])

    await nodes.move_slot(slot, target, meanwhile=meanwhile)
    assert seen == [b"7"]
    await cluster.send(pack(("DEL", meta)), 1, meta)


async def test_a_call_about_keys_that_are_at_two_nodes_is_known_not_to_have_run(
    nodes: RedisNodes, open_log: OpenLog
) -> None:
    log = await open_log(append_deadline_s=2, direct_after_s=60)
    stream = new_stream()
    await appended(log, append(stream))
    await opened(log, stream)
    partition = lane(log, stream).partition
    slot = slot_of(log, partition.number)
    source = await nodes.holder(slot)
    outcomes: list[Any] = []

    async def meanwhile() -> None:
        """Some of the partition's keys are at the target by now."""
        if not outcomes:
            with pytest.raises(NotRun, match="during rehashing"):
                keys = (partition.keys.meta, partition.keys.journal, *partition.keys.identities)
                await Scripts(log._scripts.servers).run("journal", keys, (1, 0, 1))
            # Not one that is asked just as its time is up: whether that call ran is not known.
            while not outcomes or (isinstance(outcomes[-1], OutcomeUnknown) and len(outcomes) < 4):
                outcomes.append(await log.append(append(stream)))
            assert (await log.length(stream)) == 1

    await nodes.move_slot(slot, await a_master_besides(nodes, source), meanwhile=meanwhile)
    assert isinstance(outcomes[-1], NotCommitted)
    await until(lambda: partition.open)
    (after,) = await appended(log, append(stream))
    assert after.first_version == 2


async def test_while_a_slot_is_on_its_way_key_by_key_only_its_partition_does_without_redis(
    nodes: RedisNodes, open_log: OpenLog, place: Place
) -> None:
    """From the first moment on: all its keys are still where they were, but no new one may come to them."""
    log = await open_log(direct_after_s=1)
    streams = [new_stream(tenant_in(p)) for p in range(PARTITIONS)]
    await appended(log, *(append(stream) for stream in streams))
    await in_redis(log)
    slot = slot_of(log, 0)
    source = await nodes.holder(slot)
    target = await a_master_besides(nodes, source)
    await target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
    await source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
    await until(lambda: lane(log, streams[0]).partition.direct)
    await appended(log, *(append(stream) for stream in streams), append(new_stream(streams[0].tenant)))
    assert [lane(log, stream).partition.direct for stream in streams] == [True] + [False] * (PARTITIONS - 1)
    assert not log._redis_outage.lasts
    for node in (source, target):
        await node.call("CLUSTER", "SETSLOT", slot, "STABLE")
    await in_redis(log)
    await appended(log, *(append(stream, expected=2) for stream in streams))
    await check_invariants(place)


# -- under load


async def test_a_slot_that_is_moved_key_by_key_under_load_loses_no_event(
    open_log: OpenLog, place: Place, nodes: RedisNodes
) -> None:
    load = Load([await open_log(), await open_log()])
    partition = lane(load.logs[0], load.streams[0]).partition
    slot = slot_of(load.logs[0], partition.number)
    async with load.running():
        for _ in range(2):
            await in_redis(*load.logs)  # or the move concerns no server
            await load.more(100)
            epoch = partition.epoch
            await nodes.move_slot(slot, await a_master_besides(nodes, await nodes.holder(slot)))
            await load.more(100)
            await epoch_after(epoch, partition)  # perhaps not of this gateway yet
    await in_redis(*load.logs)
    assert set(tally([outcome for *_, outcome in load.outcomes])) == {"Appended"}
    await load.check(load.logs[1])
    await check_invariants(place)


async def test_a_slot_that_is_moved_in_one_go_under_load_loses_no_event(
    open_log: OpenLog, place: Place, nodes: RedisNodes
) -> None:
    load = Load([await open_log(), await open_log()])
    slot = slot_of(load.logs[0], lane(load.logs[0], load.streams[0]).partition.number)
    async with load.running():
        await load.more(100)
        source = await nodes.holder(slot)
        await nodes.migrate_slot(slot, await a_master_besides(nodes, source))
        await load.more(100)
    assert set(tally([outcome for *_, outcome in load.outcomes])) == {"Appended"}
    await load.check(load.logs[1])
    await in_redis(*load.logs)
    await check_invariants(place)


@pytest.mark.parametrize("orderly", [True, False], ids=["in order", "killed"])
async def test_a_master_that_fails_over_under_load_loses_no_event(
    open_log: OpenLog, place: Place, nodes: RedisNodes, orderly: bool
) -> None:
    load = Load([await open_log(), await open_log()])
    slot = slot_of(load.logs[0], lane(load.logs[0], load.streams[0]).partition.number)
    async with load.running():
        await load.more(100)
        master = await nodes.holder(slot)
        if orderly:
            await nodes.fail_over(master)
        else:
            master.server.kill()
            (replica,) = nodes.replicas(master)
            await eventually(lambda: nodes.leads(replica))
        await load.more(100)
        await eventually(lambda: _is_taken_over(nodes, slot, master))  # as the node that is asked has heard
    await in_redis(*load.logs)
    assert set(tally([outcome for *_, outcome in load.outcomes])) == {"Appended"}
    await load.check(load.logs[1])
    await check_invariants(place)


async def _is_taken_over(nodes: RedisNodes, slot: int, before: Node) -> bool:
    return await nodes.holder(slot) is not before


async def test_a_node_that_ended_by_itself_is_started_again_and_one_that_was_killed_is_not(
    nodes: RedisNodes,
) -> None:
    """As a crash of Redis' own, in a test of something else."""
    (crashed, killed) = (node.server for node in nodes.nodes[-2:])
    before = crashed.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    killed.kill()
    await eventually(lambda: _is_up(nodes, crashed, before))
    assert killed.pid is None
    await killed.start()
    await eventually(nodes.well)


async def _is_up(nodes: RedisNodes, server: Server, before: int) -> bool:
    assert not await nodes.well()
    return server.pid not in (before, None)


async def _is_ready(log: Log) -> bool:
    return await log.ready() is None


@asynccontextmanager
async def no_vote(nodes: RedisNodes, silent: Node) -> AsyncIterator[None]:
    """Until its end a master that is silent is not taken for dead: the others would refuse calls, too, and
    another one would soon lead in its place."""
    others = [node for node in nodes.nodes if node is not silent]
    try:
        for node in others:
            await node.call("CONFIG", "SET", "cluster-node-timeout", 600_000)
        yield
    finally:
        for node in others:
            await node.call("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)


async def test_while_a_master_is_away_only_its_partitions_do_without_redis(
    open_log: OpenLog, place: Place, nodes: RedisNodes
) -> None:
    log = await open_log(redis_timeout_s=30, direct_after_s=1)  # calls under way are given up
    streams = [new_stream(tenant_in(p)) for p in range(PARTITIONS)]
    await appended(log, *(append(stream) for stream in streams))
    master = await nodes.holder(slot_of(log, 0))
    there = [stream for p, stream in enumerate(streams) if await nodes.holder(slot_of(log, p)) is master]
    async with no_vote(nodes, master):
        master.server.pause()
        await appended(log, *(append(stream) for stream in streams))
        direct = [stream for stream in streams if lane(log, stream).partition.direct]
        assert direct == there
        assert log.mode == "direct"
    await eventually(lambda: _is_ready(log))  # the other masters refuse calls while they vote on this one
    await in_redis(log)
    master.server.resume()
    await appended(log, *(append(stream) for stream in streams))
    await check_invariants(place)


async def test_while_all_nodes_are_silent_every_partition_does_without_redis_as_soon_as_with_one_server(
    open_log: OpenLog, place: Place, nodes: RedisNodes
) -> None:
    log = await open_log(redis_timeout_s=30, direct_after_s=1, append_deadline_s=15)
    streams = [new_stream(tenant_in(p)) for p in range(PARTITIONS)]
    await appended(log, *(append(stream) for stream in streams))
    for node in nodes.nodes:
        node.server.pause()
    await appended(log, *(append(stream) for stream in streams))
    assert all(lane(log, stream).partition.direct for stream in streams)
    for node in nodes.nodes:
        node.server.resume()
    await in_redis(log)
    await appended(log, *(append(stream) for stream in streams))
    await check_invariants(place)

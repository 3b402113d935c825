"""Every kind of damage, done by hand to an instance without clients: the audit finds it and says where."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.events import Stream
from gateway.operations.place import Place
from tests.operations.filled import audited, fill, p_of
from tests.support import drive
from tests.support.databases import cloned
from tests.support.drive import open_gateway
from tests.support.servers import Servers

_TABLES = ("outbox", "append_identity", "partition_log", "partition_trail", "tenant_storage")


@pytest.fixture(scope="module")
async def filled(servers: Servers, template: str) -> AsyncIterator[tuple[drive.Place, list[Stream]]]:
    """Filled once, by a gateway that is gone, with a copy of all tables."""
    async with cloned(servers, template) as url:
        home = drive.Place(url, servers.redis_url)
        gateway = await open_gateway(home)
        streams = await fill(gateway.log)
        await gateway.close()
        await home.execute("CREATE SCHEMA pristine")
        for table in _TABLES:
            await home.execute(f"CREATE TABLE pristine.{table} AS TABLE {table}")
        yield home, streams


@pytest.fixture
def home(filled: tuple[drive.Place, list[Stream]]) -> drive.Place:
    return filled[0]


@pytest.fixture
async def streams(filled: tuple[drive.Place, list[Stream]], place: Place) -> AsyncIterator[list[Stream]]:
    """The test may do what it likes to them: tables and keys are put back afterwards."""
    pattern = f"sluice:1:{place.instance.id.hex}:*"
    async with Redis.from_url(filled[0].redis_url) as redis:
        dumps = {key: await redis.dump(key) for key in await redis.keys(pattern)}
        yield filled[1]
        await redis.delete(*await redis.keys(pattern))
        for key, dump in dumps.items():
            await redis.restore(key, 0, dump)
    for table in _TABLES:
        overriding = "OVERRIDING SYSTEM VALUE" if table == "partition_trail" else ""
        await filled[0].execute(f"TRUNCATE {table}")
        await filled[0].execute(f"INSERT INTO {table} {overriding} TABLE pristine.{table}")


# -- in Postgres

SWAPPED_VERSIONS = """
UPDATE outbox SET version = version - 3 WHERE p = {p} AND aggregate_id = 'a' AND version < 3;
UPDATE outbox SET version = -version WHERE p = {p} AND version < 1
"""
ONE_OF_TWO_APPENDS = """
UPDATE outbox o SET append_id = f.append_id FROM outbox f
WHERE o.p = {p} AND o.seq = 2 AND f.p = {p} AND f.seq = 1
"""
A_DIGEST_OF_ANOTHER_ROW = """
UPDATE outbox o SET digest = f.digest FROM outbox f
WHERE o.p = {p} AND o.seq = 2 AND f.p = {p} AND f.seq = 1
"""
A_TENANT_COUNTED_TWICE = """
INSERT INTO tenant_storage (tenant, p, events, bytes) VALUES (gen_random_uuid(), {p}, 1, 1)
"""
COMMITS_TAKEN_BACK = """
DELETE FROM outbox WHERE p = {p} AND seq > 12;
UPDATE partition_log SET seq = 12 WHERE p = {p}
"""

# What is done, which invariant it breaks, and what is said about it.
IN_POSTGRES = [
    ("UPDATE outbox SET payload = '9' WHERE p = {p} AND seq = 3", "rows", "seq 3: the row is not"),
    ("UPDATE outbox SET payload = NULL WHERE p = {p} AND seq = 2", "rows", "seq 2: its payload is gone"),
    ("UPDATE outbox SET actor_type = 'x' WHERE p = {p} AND seq = 2", "rows", "seq 2: the row is not"),
    ("UPDATE outbox SET extra = '{{}}' WHERE p = {p} AND seq = 14", "rows", "seq 14: the row is not"),
    ("UPDATE outbox SET spec_rev = 9 WHERE p = {p} AND seq = 1", "rows", "seq 1: the row is not"),
    ("UPDATE outbox SET recorded_at = now() WHERE p = {p} AND seq = 5", "rows", "seq 5: the row is not"),
    ("UPDATE outbox SET digest = sha256('') WHERE p = {p} AND seq = 4", "rows", "seq 4: the row is not"),
    (A_DIGEST_OF_ANOTHER_ROW, "chain", "seq 1…14: the rows give"),
    (A_TENANT_COUNTED_TWICE, "storage", "events are counted, the mark"),
    ("DELETE FROM outbox WHERE p = {p} AND seq = 4", "order", "seq 4…4: these rows are missing"),
    ("DELETE FROM outbox WHERE p = {p} AND seq IN (4, 5)", "order", "seq 4…5: these rows are missing"),
    ("DELETE FROM outbox WHERE p = {p} AND seq = 1", "order", "seq 1…1: these rows are missing"),
    ("DELETE FROM outbox WHERE p = {p} AND seq = 14", "order", "seq 14…14: these rows are missing"),
    ("DELETE FROM outbox WHERE p = {p}", "order", "seq 1…14: these rows are missing"),
    ("UPDATE partition_log SET seq = 13 WHERE p = {p}", "order", "seq 14…14: rows are there"),
    ("UPDATE outbox SET append_id = '' WHERE p = {p} AND seq = 3", "order", "seq 3: an append begins here"),
    (ONE_OF_TWO_APPENDS, "order", "seq 3: an append begins here without its first event"),
    ("DELETE FROM partition_log WHERE p = {p}", "order", "partition_log: the partition has no row"),
    ("UPDATE partition_log SET chain = '' WHERE p = {p}", "chain", "stored is none"),
    ("UPDATE outbox SET version = 99 WHERE p = {p} AND seq = 14", "versions", "version 99 follows 6"),
    ("DELETE FROM outbox WHERE p = {p} AND version = 1", "versions", "version 2 follows nothing"),
    (SWAPPED_VERSIONS, "versions", "version 2 stands at seq 1, the one before at 2"),
    ("UPDATE outbox SET p = (SELECT min(l.p) FROM partition_log l WHERE l.seq = 0) WHERE p = {p}",
     "tenants", "version 1 is in partition"),
    ("UPDATE outbox SET p = 99 WHERE p = {p}", "tenants", "partition 99, outbox: there are 16 partitions"),
    ("UPDATE append_identity SET seq = 77 WHERE p = {p}", "identities", "there is no row at seq 77"),
    ("UPDATE append_identity SET seq = seq + 1 WHERE p = {p}", "identities", "not the first of its append"),
    ("UPDATE append_identity SET count = 3 WHERE p = {p}", "identities", "at seq 2 has more than 3 rows"),
    ("UPDATE append_identity SET count = 5 WHERE p = {p}", "identities", "at seq 2 has 4 rows there, not 5"),
    ("UPDATE append_identity SET p = ({p} + 1) % 16 WHERE p = {p}", "identities", "not in its tenant's part"),
    ("UPDATE append_identity SET digest = '' WHERE p = {p}", "identities", "request digest is not a SHA-256"),
    ("UPDATE append_identity SET count = 0 WHERE p = {p}", "identities", "has more than 0 rows"),
    ("UPDATE partition_log SET alarm = 'lost' WHERE p = {p}", "seen", "partition_log: halted: lost"),
    (COMMITS_TAKEN_BACK, "seen", "seq 14: Redis saw it committed in epoch 2, Postgres is at seq 12"),
    ("UPDATE partition_log SET epoch = 1 WHERE p = {p}", "epochs", "Redis is in epoch 2, Postgres in 1"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "invariant", "told"), IN_POSTGRES)
async def test_damage_in_postgres_is_found(
    damage: str, invariant: str, told: str, home: drive.Place, place: Place, streams: list[Stream]
) -> None:
    for statement in damage.format(p=p_of(place, streams[0])).split(";"):
        await home.execute(statement)
    report = await audited(place)
    found = [str(each) for each in report.violations if each.invariant == invariant]
    assert any(told in each for each in found), report.violations


# -- in Redis: KEYS are the meta hash, the journal, and a stream

OTHER_BYTES = """
local entries = redis.call('XRANGE', {key}, '-', '+')
redis.call('DEL', {key})
for i, entry in ipairs(entries) do
  local fields = entry[2]
  if i == 3 then fields[#fields] = string.gsub(fields[#fields], 'user', 'uses') end
  redis.call('XADD', {key}, entry[1], unpack(fields))
end
"""
OTHER_SEQ = """
redis.call('XTRIM', KEYS[3], 'MAXLEN', 0)
redis.call('XADD', KEYS[3], '8-0', 1, 'x')
"""
ONE_TOO_MANY = """
redis.call('XADD', KEYS[3], '8-0', 9, 'x')
redis.call('HSET', KEYS[1], 'c', 99)
"""
IN_REDIS = [
    ("redis.call('XDEL', KEYS[3], '3-0')", "streams", "version 4 at seq 4 stands after version 2 at seq 2"),
    ("redis.call('XDEL', KEYS[3], '7-0')", "streams", "it ends at version 6, but 7 are committed"),
    (OTHER_BYTES.format(key="KEYS[3]"), "streams", "version 3 is not what Postgres has, byte for byte"),
    (OTHER_SEQ, "streams", "version 8 is not in Postgres"),
    (ONE_TOO_MANY, "streams", "version 8 is not in Postgres"),
    ("redis.call('HSET', KEYS[1], 'c', 99, 'q', 99)", "seen", "seq 99: Redis saw it committed in epoch 2"),
    ("redis.call('HSET', KEYS[1], 'ch', 'x')", "seen", "seq 14: Redis saw another history committed"),
    ("redis.call('HINCRBY', KEYS[1], 'epoch', 1)", "epochs", "Redis is in epoch 3, Postgres in 2"),
    ("redis.call('XDEL', KEYS[2], '5-0')", "journal", "seq 6: the journal's entry before ends at seq 1"),
    (OTHER_BYTES.format(key="KEYS[2]"), "journal", "seq 6: the journal's entry is not what its chain says"),
    ("redis.call('HSET', KEYS[1], 'q', 20)", "journal", "seq 15…20: the journal does not continue"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "invariant", "told"), IN_REDIS)
async def test_damage_in_redis_is_found(
    damage: str, invariant: str, told: str, place: Place, streams: list[Stream]
) -> None:
    p = p_of(place, streams[0])
    keys = place.keys(p, (await place.postgres.partition(p)).epoch)
    await place.redis.eval(damage, 3, keys.meta, keys.journal, keys.stream(streams[0]))
    report = await audited(place, deep=True)
    found = [str(each) for each in report.violations if each.invariant == invariant]
    assert any(told in each for each in found), report.violations


async def test_streams_on_a_server_that_was_away_meanwhile_may_end_anywhere(
    place: Place, streams: list[Stream]
) -> None:
    p = p_of(place, streams[0])
    keys = place.keys(p, (await place.postgres.partition(p)).epoch)
    restarted = "redis.call('XDEL', KEYS[2], '7-0'); redis.call('HSET', KEYS[1], 'fence', 'another')"
    await place.redis.eval(restarted, 2, keys.meta, keys.stream(streams[0]))
    report = await audited(place, deep=True)
    assert [each for each in report.violations if each.invariant == "streams"] == []

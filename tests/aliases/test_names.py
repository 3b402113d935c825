"""Names over their life: given once, to one aggregate, permanently; the tables say what the events say."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.aliases.projects import ProjectKeys
from gateway.aliases.resolver import Ambiguous
from gateway.aliases.store import Found, Snapshot
from gateway.aliases.transfer import CannotImport, exported, plan, read
from gateway.aliases.writer import stream_of
from gateway.catalog import specs, tenants
from gateway.events import Stream
from gateway.names.changes import Change, Retire
from gateway.postgres.errors import PostgresTrouble
from spec.model import Spec
from spec.parse import parse
from tests.aliases.conftest import OpenRegistry
from tests.aliases.drive import SPEC, WAIT_S, Registry, alias, name, tables
from tests.support.calls import until
from tests.support.drive import Place, Proceed, append, appended, event, interpose, new_stream, seal

_numbers = itertools.count(1)
KEYS = [f"{n:08}-0000-4000-a000-000000000001" for n in range(4)]


def declared() -> Spec:
    spec = parse(SPEC)
    assert isinstance(spec, Spec)
    return spec


async def bring_in(registry: Registry, tenant: UUID, *lines: bytes) -> None:
    wanted = read(lines, declared())

    async def planned(at: Snapshot) -> Sequence[Change]:
        return await plan(at, wanted)

    await registry.writer.write(tenant.bytes, planned)


def line(text: str, key: str, aggregate_type: str = "order", more: str = "") -> bytes:
    return f'{{"alias":"{text}","aggregate_type":"{aggregate_type}","key":"{key}"{more}}}'.encode()


# -- resolving


async def test_an_alias_is_resolved_within_its_tenant_and_type(
    registry: Registry, tenant: UUID, database: asyncpg.Pool
) -> None:
    other = (await tenants.create(database, "other")).id
    await registry.give(tenant, ("VNO-1", "order", KEYS[0]))
    await registry.give(other, ("VNO-1", "ticket", KEYS[1]))
    for _ in range(2):  # by Postgres, then from memory
        for owner, kind, key in ((tenant, "order", KEYS[0]), (other, "ticket", KEYS[1])):
            expected = Found(alias("VNO-1"), kind, key, False)
            assert await registry.resolve(owner, "vno-1") == expected
            assert await registry.resolve(owner, "VNO-1", kind) == expected
            assert await registry.resolve(owner, "VNO-1", "note") is None
        assert await registry.resolve(tenant, "VNO-1", "ticket") is None


async def test_a_hash_id_is_found_without_its_prefix_and_abbreviated_only_on_reads(
    registry: Registry, tenant: UUID
) -> None:
    await registry.give(
        tenant,
        ("bd-k86gaq", "order", KEYS[0]),
        ("bd-k86gm2", "order", KEYS[1]),
        ("bd-k86gaq.1", "note", KEYS[2]),
        ("bd-k86gaqx", "ticket", KEYS[3]),
    )

    async def key(text: str, kind: str | None = None, *, exact: bool = False) -> object:
        found = await registry.resolve(tenant, text, kind, exact=exact)
        return found.key if isinstance(found, Found) else found

    assert await key("bd-k86gaq") == await key("k86gaq") == await key("K86GAQ", exact=True) == KEYS[0]
    assert await key("bd-k86gm") == await key("k86gm", "order") == KEYS[1]
    assert await key("k86gaq.1") == await key("k86ga.1") == KEYS[2]
    assert await key("k86g", "ticket") == KEYS[3], "another type is no candidate"
    assert await key("k86g") == Ambiguous(("bd-k86gaq", "bd-k86gaqx", "bd-k86gm2"))
    assert await key("k86ga") == Ambiguous(("bd-k86gaq", "bd-k86gaqx"))
    for text in ("k86gm", "bd-k86g", "k86ga.1"):
        assert await key(text, exact=True) is None
    for text in ("k86gaq.11", "k86gaq.2", "bd-k86gaq.1.1", "xy-k86gaq", "6gaq"):
        assert await key(text) is None


async def test_an_ambiguous_abbreviation_names_ten_candidates_at_most(
    registry: Registry, tenant: UUID
) -> None:
    texts = [f"bd-zzzz{letter}{n}" for letter in "abc" for n in range(5)]
    await registry.give(tenant, *((text, "order", new_stream().key) for text in texts))
    assert await registry.resolve(tenant, "zzzz") == Ambiguous(tuple(sorted(texts)[:10]))


async def test_a_name_that_is_committed_is_found_whichever_gateway_died_before_it_was_in_the_tables(
    open_one: OpenRegistry, tenant: UUID
) -> None:
    writing, reading = await open_one(assigning=False), await open_one(assigning=False)
    syncs = 0

    async def lost_after_the_first(proceed: Proceed, *args: object) -> object:
        nonlocal syncs
        syncs += 1
        if syncs == 1:
            return await proceed()
        raise PostgresTrouble("died")

    interpose(writing.store, "sync", lost_after_the_first)
    with pytest.raises(PostgresTrouble):
        await writing.give(tenant, ("VNO-1", "order", KEYS[0]))
    found = await reading.resolve(tenant, "VNO-1")
    assert isinstance(found, Found)
    assert found.key == KEYS[0]


@pytest.mark.parametrize("method", ["exact", "abbreviated", "sync"])
async def test_what_could_not_be_looked_up_is_not_called_unknown(
    registry: Registry, tenant: UUID, method: str
) -> None:
    await registry.give(tenant, ("bd-k86gaq", "order", KEYS[0]))

    async def fails(_proceed: Proceed, *_args: object, **_more: object) -> object:
        raise PostgresTrouble("gone")

    interpose(registry.store, method, fails)
    with pytest.raises(PostgresTrouble):
        await registry.resolve(tenant, "bd-k86m")


async def test_what_was_read_in_another_epoch_is_asked_again(
    registry: Registry, tenant: UUID, place: Place
) -> None:
    await registry.give(tenant, ("VNO-1", "order", KEYS[0]))
    assert await registry.resolve(tenant, "VNO-1") is not None
    await place.execute("DELETE FROM alias")  # as a rewind to before it was given
    assert await registry.resolve(tenant, "VNO-1") is not None, "it is in memory"
    await seal(place, registry.log, stream_of(tenant.bytes))
    assert await registry.resolve(tenant, "VNO-1") is None


# -- import


async def test_an_import_raises_the_counter_which_never_goes_back(registry: Registry, tenant: UUID) -> None:
    assert await registry.names_of(await registry.create(tenant)) == ["VNO-1"]
    await bring_in(registry, tenant, line("VNO-50", KEYS[0]), line("@vno-7", KEYS[1], "ticket"))
    assert await registry.names_of(await registry.create(tenant)) == ["VNO-51"]
    await bring_in(registry, tenant, line("VNO-30", KEYS[2]))
    assert await registry.names_of(await registry.create(tenant)) == ["VNO-52"]
    assert await registry.names_of(await registry.create(tenant, "order", KEYS[0])) == ["VNO-50"]


async def test_an_import_again_changes_nothing(registry: Registry, tenant: UUID, place: Place) -> None:
    lines = [
        line("VNO-50", KEYS[0]),
        line("bd-k86gaq.1", KEYS[1], "note"),
        line("VNO-51", KEYS[1], "ticket", ',"retired":true'),
        b"",
        line("VNO-50", KEYS[0]),
    ]
    await bring_in(registry, tenant, *lines)
    before = await tables(place)
    await bring_in(registry, tenant, *lines)
    assert await tables(place) == before
    told = [exported(each) for each in await registry.all_of(tenant)]
    assert told == [lines[0] + b"\n", lines[2] + b"\n", lines[1] + b"\n"]


async def test_an_export_brought_into_another_tenant_is_the_same(
    registry: Registry, tenant: UUID, database: asyncpg.Pool
) -> None:
    other = (await tenants.create(database, "other")).id
    await bring_in(registry, tenant, *(line(f"VNO-{n}", new_stream().key) for n in range(1, 40)))
    await registry.retire(tenant, "VNO-7")
    told = [exported(each) for each in await registry.all_of(tenant)]
    await bring_in(registry, other, *told)
    assert [exported(each) for each in await registry.all_of(other)] == told


async def test_an_import_that_can_not_be_whole_changes_nothing(
    registry: Registry, tenant: UUID, place: Place
) -> None:
    await bring_in(registry, tenant, line("VNO-1", KEYS[0]), line("VNO-2", KEYS[1]))
    before = await tables(place)
    with pytest.raises(CannotImport) as refused:
        await bring_in(
            registry,
            tenant,
            line("VNO-9", KEYS[2]),
            line("VNO-1", KEYS[1]),  # another's, and it has one
            line("VNO-3", KEYS[1]),
            line("VNO-10", KEYS[2]),
        )
    assert [fault.line for fault in refused.value.faults] == [2, 3, 4]
    assert await tables(place) == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"{", "JSON"),
        (b'{"alias":1}', "`alias`"),
        (b'{"alias":"VNO-1","alias":"VNO-2"}', ""),
        (b'["VNO-1"]', "A line is"),
        (line("VNO-0", KEYS[0]), "starts from 1"),
        (line("k86gaq", KEYS[0]), "no prefix"),
        (line("bd-k86", KEYS[0]), "at least 4"),
        (line("vno-k86gaq", KEYS[0]), "another kind"),
        (line("VNO-1", KEYS[0], "nothing"), "no aggregate type"),
        (line("VNO-1", "order-1"), "not an identifier"),
        (line("VNO-1", KEYS[0], "order", ',"retired":1'), "`retired`"),
        (line("VNO-1", KEYS[0], "order", ',"retierd":true'), "Did you mean"),
    ],
)
def test_a_line_that_is_none_says_why(text: bytes, told: str) -> None:
    with pytest.raises(CannotImport) as refused:
        read([line("VNO-5", KEYS[1]), text], declared())
    assert [fault.line for fault in refused.value.faults] == [2]
    assert told in str(refused.value)


def test_a_file_that_gives_a_name_twice_is_refused() -> None:
    with pytest.raises(CannotImport, match="line 2: VNO-1 is in line 1"):
        read([line("VNO-1", KEYS[0]), line("vno-1", KEYS[1])], declared())


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.aliases.transfer.NAMES_MAX", 2)
    with pytest.raises(CannotImport, match="line 3: At most 2"):
        read([line(f"VNO-{n}", new_stream().key) for n in (1, 2, 3)], declared())


# -- writing


async def test_a_plan_is_made_again_when_another_writer_was_faster(
    open_one: OpenRegistry, tenant: UUID
) -> None:
    one, other = await open_one(assigning=False), await open_one(assigning=False)
    seen: list[int] = []

    async def planned(at: Snapshot) -> Sequence[Change]:
        seen.append(at.version)
        if len(seen) == 1:
            await other.give(tenant, ("VNO-1", "order", KEYS[0]))
        return (Retire((name("VNO-1"),)),) if await at.holders([name("VNO-1")]) else ()

    async def first_gives(at: Snapshot) -> Sequence[Change]:
        changes = await planned(at)
        return changes or (Retire((name("VNO-9"),)),)  # would be of no effect: no aggregate has it

    written = await one.writer.write(tenant.bytes, first_gives)
    assert seen == [0, 1]
    assert (written.version, written.changes) == (2, (Retire((name("VNO-1"),)),))


async def test_nothing_is_appended_where_nothing_changes(registry: Registry, tenant: UUID) -> None:
    async def planned(_at: Snapshot) -> Sequence[Change]:
        return (Retire(()),)

    assert (await registry.writer.write(tenant.bytes, planned)).version == 0
    assert await registry.log.length(stream_of(tenant.bytes)) == 0


async def test_an_event_of_a_newer_release_is_not_passed_over(registry: Registry, tenant: UUID) -> None:
    stream = stream_of(tenant.bytes)
    await appended(registry.log, append(stream, events=(event(type="_names_renamed", payload=b"{}"),)))
    with pytest.raises(ValueError, match="does not know the event _names_renamed"):
        await registry.store.sync(tenant.bytes)
    with pytest.raises(ValueError, match="does not know the event _names_renamed"):
        await registry.store.rebuild(tenant.bytes)


async def test_a_sync_ends_where_its_events_are_deleted_meanwhile(
    registry: Registry, tenant: UUID, database: asyncpg.Pool
) -> None:
    """As those of a tenant that is deleted."""
    await registry.retire(tenant, "VNO-9")
    last = append(stream_of(tenant.bytes), events=(event(type="_names_retired", payload=b'{"names":[]}'),))
    await appended(registry.log, last)
    async with database.acquire() as other:
        async with other.transaction():
            await other.execute("SELECT FROM alias_position WHERE tenant = $1 FOR UPDATE", tenant)
            syncing = asyncio.create_task(registry.store.sync(tenant.bytes))
            waits = (
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            await until(lambda: database.fetchval(waits))
            await other.execute(
                "DELETE FROM outbox WHERE tenant = $1 AND aggregate_type = '_names' AND version = 2", tenant
            )
        async with asyncio.timeout(WAIT_S):
            assert await syncing == 1


async def test_a_claim_of_a_project_that_postgres_fails_is_its_trouble_and_no_bug(
    registry: Registry, tenant: UUID, database: asyncpg.Pool
) -> None:
    """As where its disk is full: an append is refused with 503 then, as all that asks for names is."""

    async def state_of(_stream: Stream, _deployed: object) -> object:
        return {}

    project = {"type": "order", "key": "$.data.key"}
    numbered = parse({**SPEC, "public_ids": {"projects": project, "member": {"ticket": "$.data.of"}}})
    assert isinstance(numbered, Spec), numbered
    keys = ProjectKeys(registry.log, database, state_of)
    creating = append(Stream(tenant.bytes, "order", KEYS[0]), events=(event(payload=b'{"key":"VNO"}'),))
    await database.execute("ALTER TABLE project_key RENAME TO elsewhere")
    with pytest.raises(PostgresTrouble, match="project_key"):
        await keys.refused(numbered, creating)


async def test_tables_that_were_damaged_are_made_again_from_the_events(
    registry: Registry, tenant: UUID, place: Place
) -> None:
    await asyncio.gather(*(registry.create(tenant) for _ in range(5)))
    last = await registry.create(tenant)
    await registry.names_of(last)
    await registry.retire(tenant, "VNO-2")
    before = await tables(place)
    await place.execute("UPDATE alias SET aggregate_id = 'global' WHERE body = '3'")
    await place.execute("DELETE FROM alias WHERE body = '4'")
    await place.execute("UPDATE alias_counter SET greatest = 2")
    rebuilt = await registry.store.rebuild(tenant.bytes)
    assert (rebuilt.names, rebuilt.unchanged) == (6, False)
    assert await tables(place) == before
    assert (await registry.store.rebuild(tenant.bytes)).unchanged
    for lost in ("alias_position", "alias", "alias, alias_counter, alias_position, alias_scan"):
        await place.execute(f"TRUNCATE {lost}")
        assert (await registry.store.rebuild(tenant.bytes)).names == 6
        assert await tables(place) == before
    assert await registry.names_of(await registry.create(tenant)) == ["VNO-7"]


# -- random histories


@dataclass(slots=True)
class Model:
    """Names in the plainest words: what each was given to, and which are retired."""

    holders: dict[str, Stream] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    greatest: int = 0
    named: dict[Stream, str] = field(default_factory=dict)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(0, 1)),
        st.tuples(st.just("retire"), st.integers(1, 12)),
        st.tuples(st.just("restore"), st.integers(1, 12)),
        st.tuples(st.just("import"), st.integers(1, 12)),
        st.tuples(st.just("steal"), st.integers(1, 12)),
        st.tuples(st.just("rename"), st.integers(1, 12)),
        st.tuples(st.just("rebuild"), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_no_history_points_an_alias_elsewhere_or_uses_a_number_again(
    open_two: tuple[Registry, Registry], database: asyncpg.Pool, steps: list[tuple[str, int]]
) -> None:
    owner = await new_tenant(database)
    both, model = open_two, Model()
    for registry in both:
        await registry.catalog.refresh()
    for n, (step, number) in enumerate(steps):
        registry, text = both[n % 2], f"VNO-{number}"
        if step == "create":
            stream = await registry.create(owner, ("order", "ticket")[number])
            model.greatest += 1
            given_name = f"VNO-{model.greatest}"
            assert await registry.names_of(stream) == [given_name]
            model.holders[given_name], model.named[stream] = stream, given_name
        elif step in ("retire", "restore") and text in model.holders:
            await registry.retire(owner, text, restore=step == "restore")
            (model.retired.add if step == "retire" else model.retired.discard)(text)
        elif step == "import":
            stream = Stream(owner.bytes, "order", new_stream().key)
            await imported(registry, owner, model, text, number, stream)
        elif step == "steal" and model.holders:
            other = list(model.holders.values())[number % len(model.holders)]
            await imported(registry, owner, model, text, number, other)
        elif step == "rename" and model.holders:  # another number for one that has one already
            stream = list(model.named)[number % len(model.named)]
            await imported(registry, owner, model, f"VNO-{number + 20}", number + 20, stream)
        elif step == "rebuild":
            assert (await registry.store.rebuild(owner.bytes)).unchanged
        await holds(both[(n + 1) % 2], owner, model)


async def imported(
    registry: Registry, owner: UUID, model: Model, text: str, number: int, stream: Stream
) -> None:
    """Refused where the name is another's, or the aggregate has another; of no effect where it is so."""
    there = model.holders.get(text)
    fits = there == stream or (there is None and stream not in model.named)
    try:
        await bring_in(registry, owner, line(text, stream.key, stream.aggregate_type))
    except CannotImport:
        assert not fits
        return
    assert fits
    model.retired.discard(text)
    model.holders[text], model.named[stream] = stream, text
    model.greatest = max(model.greatest, number)


async def holds(registry: Registry, owner: UUID, model: Model) -> None:
    found = {each.alias.text: each for each in await registry.all_of(owner)}
    assert found.keys() == model.holders.keys()
    for text, stream in model.holders.items():
        resolved = await registry.resolve(owner, text)
        assert isinstance(resolved, Found)
        assert (resolved.aggregate_type, resolved.key) == (stream.aggregate_type, stream.key)
        assert found[text].retired == (text in model.retired)
        assert await registry.names_of(stream) == [text]


@pytest.fixture
async def open_two(open_one: OpenRegistry) -> tuple[Registry, Registry]:
    return await open_one(), await open_one()


async def new_tenant(database: asyncpg.Pool) -> UUID:
    created = await tenants.create(database, f"history-{next(_numbers)}")
    await specs.deploy(database, created.id, json.dumps(SPEC).encode(), {})
    return created.id

"""Children are numbered once, whichever gateway dies on the way, and hash ids resolve as their rules say."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from gateway.aliases.children import Child, Children, stream_of
from gateway.aliases.store import Found
from gateway.aliases.writer import NotWritten, Writer, Written
from gateway.appends import Retry, identity
from gateway.events import Stream
from gateway.names.aliases import Alias, Kind
from gateway.names.hash_ids import CHILD_NUMBER_MAX
from gateway.outcomes import NotCommitted
from tests.aliases.conftest import OpenRegistry
from tests.aliases.drive import Registry, tables
from tests.support.drive import Place, new_stream

ROOT = Alias(Kind.HASH, "bd", "k86gaq")


@pytest.fixture
async def registry(open_one: OpenRegistry) -> Registry:
    return await open_one(assigning=False)


@pytest.fixture
async def parent(registry: Registry, tenant: UUID) -> Stream:
    stream = await registry.create(tenant, "note")
    await registry.give(tenant, (ROOT.text, "note", stream.key))
    return stream


def asked(tenant: UUID, key: str | None = None, body: bytes = b"") -> Retry:
    """What a request is recognized by: nothing, without a key."""
    chosen = () if key is None else (identity(tenant.bytes, "key", key.encode()),)
    return Retry(tenant.bytes, chosen, (), body.ljust(32))


def unborn(tenant: UUID) -> Stream:
    return Stream(tenant.bytes, "note", new_stream().key)


def fresh() -> str:
    return new_stream().key


def named(outcome: object) -> tuple[str, str]:
    assert isinstance(outcome, Child), outcome
    return outcome.alias.text, outcome.key


async def test_a_retry_gets_number_name_and_key_of_the_first_attempt(
    registry: Registry, tenant: UUID, parent: Stream
) -> None:
    children = Children(registry.log, registry.writer)
    one, other = unborn(tenant), unborn(tenant)
    first = await children.name(parent, ROOT, one, asked(tenant, "once"), fresh)
    again = await children.name(parent, ROOT, other, asked(tenant, "once"), fresh)
    assert named(first) == named(again) == ("bd-k86gaq.1", one.key)
    assert named(await children.name(parent, ROOT, other, asked(tenant, "twice"), fresh)) == (
        "bd-k86gaq.2",
        other.key,
    )
    found = await registry.resolve(tenant, "bd-k86gaq.1")
    assert isinstance(found, Found)
    assert found.key == one.key


class _Dying(Writer):
    """Dies before it gives a name."""

    async def write(self, tenant: bytes, plan: object, **more: object) -> Written:  # type: ignore[override]
        raise NotWritten("killed")


async def test_one_who_dies_between_number_and_name_is_gone_on_with_by_another_gateway(
    registry: Registry, open_one: OpenRegistry, tenant: UUID, parent: Stream
) -> None:
    dying = Children(registry.log, _Dying(registry.log, registry.store))
    one = unborn(tenant)
    with pytest.raises(NotWritten):
        await dying.name(parent, ROOT, one, asked(tenant, "once"), fresh)
    with pytest.raises(NotWritten):
        await dying.name(
            parent, ROOT, unborn(tenant), asked(tenant), fresh
        )  # no gateway continues with this one
    other = await open_one(assigning=False)
    again = await Children(other.log, other.writer).name(
        parent, ROOT, unborn(tenant), asked(tenant, "once"), fresh
    )
    assert named(again) == ("bd-k86gaq.1", one.key)
    third = await Children(other.log, other.writer).name(parent, ROOT, unborn(tenant), asked(tenant), fresh)
    assert named(third)[0] == "bd-k86gaq.3", "a number is given up for ever"


async def test_a_key_that_became_another_aggregates_between_number_and_name_gets_no_name(
    registry: Registry, tenant: UUID, parent: Stream
) -> None:
    one = unborn(tenant)
    with pytest.raises(NotWritten):
        dying = Children(registry.log, _Dying(registry.log, registry.store))
        await dying.name(parent, ROOT, one, asked(tenant, "once"), fresh)
    await registry.create(tenant, one.aggregate_type, one.key)
    children, free = Children(registry.log, registry.writer), fresh()
    for _ in range(2):
        again = await children.name(parent, ROOT, unborn(tenant), asked(tenant, "once"), lambda: free)
        assert named(again) == ("bd-k86gaq.2", free)
    assert await registry.store.aliases_of(one) == []


async def test_two_gateways_never_give_one_number_twice(
    registry: Registry, open_one: OpenRegistry, tenant: UUID, parent: Stream
) -> None:
    other = await open_one(assigning=False)
    both = [Children(each.log, each.writer) for each in (registry, other)]
    given = await asyncio.gather(
        *(both[n % 2].name(parent, ROOT, unborn(tenant), asked(tenant), fresh) for n in range(12))
    )
    assert {named(each)[0] for each in given} == {f"bd-k86gaq.{n}" for n in range(1, 13)}
    assert await registry.log.length(stream_of(parent)) == 12


async def test_another_request_under_the_same_key_has_a_number_of_its_own(
    registry: Registry, tenant: UUID, parent: Stream
) -> None:
    children = Children(registry.log, registry.writer)
    one = await children.name(parent, ROOT, unborn(tenant), asked(tenant, "once", b"one"), fresh)
    other = await children.name(parent, ROOT, unborn(tenant), asked(tenant, "once", b"other"), fresh)
    assert [named(each)[0] for each in (one, other)] == ["bd-k86gaq.1", "bd-k86gaq.2"]


async def test_neither_retiring_nor_restoring_hands_a_number_out_again(
    registry: Registry, tenant: UUID, parent: Stream
) -> None:
    children = Children(registry.log, registry.writer)
    names = []
    for _ in range(3):
        name, _key = named(await children.name(parent, ROOT, unborn(tenant), asked(tenant), fresh))
        await registry.retire(tenant, name)
        names.append(name)
    await registry.retire(tenant, names[0], restore=True)
    assert (
        len({*names, named(await children.name(parent, ROOT, unborn(tenant), asked(tenant), fresh))[0]}) == 4
    )


async def test_numbers_go_on_behind_imported_ones_and_end_with_the_last_there_is(
    registry: Registry, tenant: UUID, parent: Stream
) -> None:
    children = Children(registry.log, registry.writer)
    imported = [(f"bd-k86gaq{path}", "note", new_stream().key) for path in (".1", ".7", ".7.99", ".9.1")]
    await registry.give(tenant, *imported, imported=True)
    retry = asked(tenant, "once")
    assert named(await children.name(parent, ROOT, one := unborn(tenant), retry, fresh)) == (
        "bd-k86gaq.8",
        one.key,
    )
    assert named(await children.name(parent, ROOT, unborn(tenant), retry, fresh)) == ("bd-k86gaq.8", one.key)
    for number in (9, CHILD_NUMBER_MAX):
        await registry.give(tenant, (f"bd-k86gaq.{number}", "note", new_stream().key), imported=True)
    assert isinstance(await children.name(parent, ROOT, unborn(tenant), asked(tenant), fresh), NotCommitted)


async def test_the_tables_with_children_come_out_of_the_events_as_they_were(
    registry: Registry, place: Place, tenant: UUID, parent: Stream
) -> None:
    children = Children(registry.log, registry.writer)
    for _ in range(3):
        await children.name(parent, ROOT, unborn(tenant), asked(tenant), fresh)
    before = await tables(place)
    rebuilt = await registry.store.rebuild(tenant.bytes)
    assert (rebuilt.names, rebuilt.unchanged) == (4, True)
    assert await tables(place) == before

"""Hash ids in the tables: looked up as the pure rules say, given as short as they can be."""

from __future__ import annotations

import random
import uuid
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.aliases.kinds import HashNamer
from gateway.aliases.resolver import Ambiguous
from gateway.aliases.store import Found
from gateway.catalog import tenants
from gateway.names import hash_ids
from gateway.names.aliases import Alias, of_hash, parse_alias
from gateway.names.hash_ids import HashName
from spec.names import HashIds
from tests.aliases.conftest import OpenRegistry
from tests.aliases.drive import Registry
from tests.http.hashed import alike
from tests.support.drive import Place

TYPES = ("order", "ticket")


def drawn(draw: random.Random) -> HashName:
    """A name out of few, so that many of them begin alike."""
    body = "".join(draw.choices("ab1", k=draw.randint(5, 7)))
    children = tuple(draw.choices([1, 2, 11], k=draw.choice([0, 0, 0, 1, 2])))
    return HashName(draw.choice(["bd", "tk"]), f"a{body}", children)


def typed_for(draw: random.Random, name: HashName) -> HashName:
    """The name as a person types it: less of it, or the beginning of another."""
    typed = drawn(draw) if draw.random() < 0.2 else name
    body = typed.body[: draw.randint(4, 8)]
    return HashName(draw.choice([None, typed.prefix]), body, typed.children)


async def test_an_abbreviation_stands_for_what_the_rules_say(
    open_one: OpenRegistry, tenant: UUID, place: Place
) -> None:
    registry, draw = await open_one(assigning=False), random.Random(86)
    names = sorted({drawn(draw) for _ in range(90)})
    types = {name: draw.choice(TYPES) for name in names}
    keys = {name: str(uuid.UUID(int=draw.getrandbits(128), version=4)) for name in names}
    await registry.give(tenant, *((name.text, types[name], keys[name]) for name in names))
    met = {Found: 0, Ambiguous: 0, type(None): 0}
    for _ in range(600):
        typed, wanted = typed_for(draw, draw.choice(names)), draw.choice([None, *TYPES])
        found = await registry.resolver.resolve(tenant.bytes, of_hash(typed), wanted)
        expected = hash_ids.choose(typed, [name for name in names if wanted in (None, types[name])])
        met[type(found)] += 1
        match expected:
            case HashName():
                assert isinstance(found, Found)
                assert (found.key, found.alias.text) == (keys[expected], expected.text)
            case hash_ids.Ambiguous(candidates):
                assert isinstance(found, Ambiguous)
                assert found.candidates == candidates
            case None:
                assert found is None
    assert min(met.values()) > 20, met


async def test_no_name_of_another_tenant_is_found(
    open_one: OpenRegistry, tenant: UUID, database: asyncpg.Pool
) -> None:
    registry = await open_one(assigning=False)
    await registry.give(tenant, ("bd-k86gaq", "order", "global"))
    created = await tenants.create(database, "other")
    for text in ("bd-k86gaq", "k86gaq", "k86g"):
        assert await registry.resolve(created.id, text) is None
        assert isinstance(await registry.resolve(tenant, text), Found)


NAMES = [
    *(f"bd-{body}{path}" for body in ("k86gaq", "k86gaqx", "k86gm2") for path in ("", ".1", ".11", ".1.1")),
    *("tk-k86gaq", "tk-k86g77", "VNO-1", "VNO-2", "TK-86", "BD-86"),
]
TYPED = sorted({text for name in NAMES for text in (name, name.partition("-")[2], name[:8], name[3:7])})
LOOK_UPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from([text for text in TYPED if isinstance(parse_alias(text), Alias)]),
        st.sampled_from([None, *TYPES]),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(look_ups=LOOK_UPS)
async def test_no_look_up_crosses_to_another_tenant_or_type_that_has_the_same_names(
    two_alike: tuple[Registry, tuple[Holder, Holder]], look_ups: list[tuple[int, str, str | None, bool]]
) -> None:
    registry, both = two_alike
    for at, text, wanted, exact in look_ups:
        owner, held = both[at]
        found = await registry.resolve(owner, text, wanted, exact=exact)
        match found:
            case Found():
                assert held[found.alias.text] == (found.aggregate_type, found.key)
                assert wanted in (None, found.aggregate_type)
            case Ambiguous(candidates):
                assert len(candidates) > 1
                assert all(wanted in (None, held[each][0]) for each in candidates)
            case None:
                whole = held.get(text)
                assert whole is None or wanted not in (None, whole[0])


Holder = tuple[UUID, dict[str, tuple[str, str]]]
"""A tenant, and the type and key that each of its names stands for."""


@pytest.fixture
async def two_alike(
    open_one: OpenRegistry, tenant: UUID, database: asyncpg.Pool
) -> tuple[Registry, tuple[Holder, Holder]]:
    """Two tenants with the same names: for other keys, half of them for another type, and each lacks some."""
    registry, draw = await open_one(assigning=False), random.Random(62)
    owners = (tenant, (await tenants.create(database, "other")).id)
    held: list[Holder] = []
    for at, owner in enumerate(owners):
        mine = {
            name: (TYPES[(n + at * (n % 4 < 2)) % 2], str(uuid.UUID(int=draw.getrandbits(128), version=4)))
            for n, name in enumerate(NAMES)
            if n % 5 != at
        }
        await registry.give(owner, *((name, *whose) for name, whose in mine.items()))
        held.append((owner, mine))
    return registry, (held[0], held[1])


async def test_a_retired_name_is_not_given_again(open_one: OpenRegistry, tenant: UUID) -> None:
    registry, namer = await open_one(assigning=False), HashNamer(HashIds("bd", ("order",)))
    one, other = alike(tenant, "order", characters=6)
    first = f"bd-{hash_ids.bodies(tenant.bytes, 'order', one)[0]}"
    await registry.give(tenant, (first, "order", one))
    await registry.retire(tenant, first)
    async with registry.store.snapshot(tenant.bytes) as at:
        (longer,) = await namer.name(at, [("order", other)])
    assert len(longer.body) == 7
    found = await registry.resolve(tenant, first, exact=True)
    assert isinstance(found, Found)
    assert (found.key, found.retired) == (one, True)


async def test_more_names_than_are_looked_up_at_once_are_as_short_as_those_before_let_them_be(
    open_one: OpenRegistry, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, namer = await open_one(assigning=False), HashNamer(HashIds("bd", ("order",)))
    aggregates = [("order", key) for key in alike(tenant, "order", characters=6)]
    aggregates[1:1] = [("order", str(uuid.uuid4())) for _ in range(5)]
    async with registry.store.snapshot(tenant.bytes) as at:
        whole = await namer.name(at, aggregates)
        monkeypatch.setattr("gateway.aliases.kinds._AT_ONCE", 2)
        assert await namer.name(at, aggregates) == whole
    assert [each.key for each in whole] == [key for _, key in aggregates]
    assert [len(whole[0].body), len(whole[-1].body)] == [6, 7]


async def test_a_name_is_as_short_as_what_is_there_lets_it_be(open_one: OpenRegistry, tenant: UUID) -> None:
    registry, namer = await open_one(assigning=False), HashNamer(HashIds("bd", ("order",)))
    one, other = alike(tenant, "order", characters=6)
    async with registry.store.snapshot(tenant.bytes) as at:
        both = await namer.name(at, [("order", one), ("order", other)])
        assert [len(name.body) for name in both] == [6, 7]
        assert await namer.name(at, [("order", other)]) != both[1:], "alone it is short"
    taken = hash_ids.bodies(tenant.bytes, "order", one)
    await registry.give(tenant, *((f"bd-{body}", "ticket", "global") for body in taken[:-1]))
    async with registry.store.snapshot(tenant.bytes) as at:
        (last,) = await namer.name(at, [("order", one)])
        assert last.body == taken[-1]
        elsewhere = await HashNamer(HashIds("tk", ("order",))).name(at, [("order", one)])
        assert elsewhere[0].body == taken[0], "another prefix has names of its own"
    await registry.give(tenant, (f"bd-{taken[-1]}", "ticket", "global"))
    async with registry.store.snapshot(tenant.bytes) as at:
        assert await namer.name(at, [("order", one), ("order", other)]) == await namer.name(
            at, [("order", other)]
        )

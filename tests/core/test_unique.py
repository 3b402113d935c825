"""Which aggregate holds which unique value, as the appends of a batch are judged one after another."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from gateway.appends import ANY_LENGTH, Append, make_append, make_retry
from gateway.events import Claim, Spread, Stream
from gateway.names.unique import Holders, holders_of, values_of
from gateway.outcomes import NotUnique
from tests.core.test_events import EVENT, TENANT

ONE, TWO = Stream(TENANT, "user", "one"), Stream(TENANT, "user", "two")
MAIL, OTHER = b"m" * 32, b"o" * 32


def claim(value: bytes | None, n: int = 0, name: str = "email", scope: bytes = b"") -> Claim:
    return Claim(n, name, scope, value)


def append(stream: Stream, *claims: Claim, spread: Spread | None = None) -> Append:
    paths = tuple(f"data.{n}" for n in range(len(claims)))
    events = (EVENT,) if spread is None else (EVENT,) * len(spread.order)
    others = () if spread is None else (ANY_LENGTH,) * (len(spread.streams) - 1)
    retry = make_retry(TENANT, None, (), b"")
    return make_append(stream, events, ANY_LENGTH, retry, (), spread, others, claims, paths)


def held(holders: Holders) -> dict[bytes, tuple[str, str, bytes, int]]:
    return {value: (key, name, scope, seq) for value, _, key, name, scope, seq in holders.held()}


def test_a_free_value_can_be_claimed_and_judging_takes_nothing() -> None:
    holders = Holders({})
    assert holders.judge(append(ONE, claim(MAIL))) is None
    assert held(holders) == {}
    assert holders.judge(append(TWO, claim(MAIL))) is None


def test_a_value_of_another_aggregate_is_refused_at_its_path() -> None:
    holders = Holders({MAIL: ((ONE, "email", b""), 7)})
    found = holders.judge(append(TWO, claim(OTHER), claim(MAIL, name="backup")))
    assert found == NotUnique("data.1", "user", "one")
    assert found is not None
    assert found.seq == 7
    assert holders.judge(append(ONE, claim(MAIL))) is None  # its own


def test_a_placed_append_counts_for_the_next_one() -> None:
    holders = Holders({})
    holders.take(append(ONE, claim(MAIL)))
    assert held(holders) == {MAIL: ("one", "email", b"", 0)}
    found = holders.judge(append(TWO, claim(MAIL)))
    assert found == NotUnique("data.0", "user", "one")
    assert found is not None
    assert found.seq == 0


def test_a_new_value_of_an_aggregate_frees_the_former_one_of_the_same_scope() -> None:
    holders = Holders({MAIL: ((ONE, "email", b"eu"), 7)})
    holders.take(append(ONE, claim(OTHER, scope=b"us")))
    assert set(held(holders)) == {MAIL, OTHER}
    holders.take(append(ONE, claim(b"n" * 32, scope=b"eu")))
    assert set(held(holders)) == {OTHER, b"n" * 32}
    assert holders.judge(append(TWO, claim(MAIL))) is None


def test_a_release_frees_the_values_of_its_name_in_every_scope_and_no_other() -> None:
    values = {bytes([n]) * 32: ((ONE, name, scope), n) for n, (name, scope) in enumerate(
        [("email", b""), ("email", b"eu"), ("phone", b"")])}  # fmt: skip
    holders = Holders({**values, MAIL: ((TWO, "email", b""), 9)})
    holders.take(append(ONE, claim(None)))
    assert held(holders) == {b"\2" * 32: ("one", "phone", b"", 2), MAIL: ("two", "email", b"", 9)}


def test_an_append_to_several_aggregates_may_move_a_value_in_the_order_of_its_events() -> None:
    holders = Holders({MAIL: ((ONE, "email", b""), 7)})
    spread = Spread((ONE, TWO), (0, 1))
    moved = append(ONE, claim(None, 0), claim(MAIL, 1), spread=spread)
    assert holders.judge(moved) is None
    holders.take(moved)
    assert held(holders)[MAIL][0] == "two"
    again = Holders({MAIL: ((ONE, "email", b""), 7)})
    early = append(ONE, claim(MAIL, 1), claim(None, 0), spread=spread)
    assert again.judge(early) == NotUnique("data.0", "user", "one")


def test_of_an_append_that_claims_a_value_twice_no_aggregate_is_told_that_there_is_not() -> None:
    spread, twice = Spread((ONE, TWO), (0, 1)), (claim(MAIL, 0), claim(MAIL, 1))
    both = append(ONE, *twice, spread=spread)
    for expected, key in ((0, ""), (ANY_LENGTH, "one"), (3, "one")):
        found = Holders({}).judge(replace(both, expected=expected))
        assert found == NotUnique("data.1", "user", key)
        assert found is not None
        assert (found.seq, found.holder == "user one") == (0, bool(key))
    held_before = Holders({MAIL: ((ONE, "email", b""), 7)})
    found = held_before.judge(replace(both, expected=0))  # as its look was, before the length is judged
    assert found == NotUnique("data.1", "user", "one")
    assert found is not None
    assert found.seq == 7


def test_nor_is_one_that_an_event_would_imply() -> None:
    three = Stream(TENANT, "user", "three")
    spread = Spread((ONE, TWO, three), (0, 1, 2))
    implied = append(ONE, claim(MAIL, 1), claim(MAIL, 2), spread=spread)
    found = Holders({}).judge(replace(implied, implied=2))
    assert found == NotUnique("data.1", "user", "")
    assert found is not None
    assert found.holder == "another new user of the same append"


def test_the_values_of_appends_are_listed_once_without_releases() -> None:
    appends = [append(ONE, claim(MAIL), claim(None)), append(TWO, claim(OTHER), claim(MAIL))]
    assert values_of(appends) == [MAIL, OTHER]


def test_holders_are_read_from_rows() -> None:
    row = {"tenant": UUID(bytes=TENANT), "aggregate_type": "user", "aggregate_id": "one",
           "value": MAIL, "name": "email", "scope": b"eu", "seq": 7}  # fmt: skip
    assert list(holders_of([row]).held()) == [(MAIL, "user", "one", "email", b"eu", 7)]


class Key(str):
    """Of an aggregate: counts how often it is compared or looked for."""

    looks = 0

    def __hash__(self) -> int:
        Key.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Key.looks += 1
        return super().__eq__(other)


def test_a_release_looks_at_no_other_aggregate() -> None:
    def looks(count: int) -> int:
        streams = [Stream(TENANT, "user", Key(n)) for n in range(count)]
        holders = Holders({b"%d" % n: ((each, "email", b""), n) for n, each in enumerate(streams)})
        Key.looks = 0
        assert holders.take_claim(streams[0], claim(None)) is None
        found = Key.looks
        assert len(held(holders)) == count - 1
        return found

    assert looks(1000) == looks(10)

"""An append with all that it implies, judged event by event on the states of its aggregates. Pure.

Owns: the order of implied events (behind the request's own, level by level), their ids, their bounds, and
what refuses them. Must not know: how states are read, or what becomes of the append.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final, Literal, TypeAlias, cast

import msgspec

from gateway.admit.address import bad_identifier
from gateway.admit.append import SCHEMA_WORK_MAX, too_much_work
from gateway.admit.strict_json import Malformed, decode_made
from gateway.aggregates.folder import Handlers, Rules
from gateway.appends import ANY_LENGTH, Append, fits, with_implied
from gateway.catalog.model import Deployed
from gateway.derived_ids import derived_id
from gateway.events import Claim, Event, Recorded, Spread, Stream, revised
from gateway.names.claims import claims_of
from gateway.names.records import Record, record_of
from gateway.outcomes import ImplicationRefused, RuleViolated
from gateway.state import AT_ONCE_LOOKS, EMPTY, Budget, Folded, TakesLong
from gateway.state.implications import Emitted, Unfit, emitted, view_of
from gateway.state.rules import Budgets, Violation, judge_within
from gateway.stored_extra import RecordSaid, split, with_record
from spec.identifiers import HUMANE_RANDOM_BYTES, canonicalize, mint_humane, uuid_text
from spec.identity import IdentityRule
from spec.implications import is_overlay, made_by_content
from spec.model import AggregateType, EventType
from spec.tags import TagFault, tags_of
from spec.violations import AT_ONCE_WORK_MAX, values_in

Code = Literal["invalid_identifier", "schema_violation", "invalid_tag", "invalid_claim"]

IMPLIED_MAX: Final = 100
"""Implied events of one append, of all levels."""
AGGREGATES_MAX: Final = 127
"""Of one append with all that it implies: a script's call numbers them from 1 in a byte each."""
LEVELS_MAX: Final = 4
"""How far below the request's own event: deeper is a design that no reader can follow."""
_NO_LENGTH: Final = 2**62
"""No stream is so long."""


class Judged(msgspec.Struct, frozen=True):
    """`append` with all that it implies; `pinned`: the length of each stream that was judged, by its number
    in the append; `violated`: which of its own streams a rule refuses, and how; `refused`: what can't be
    implied."""

    append: Append
    pinned: dict[int, int]
    violated: tuple[int, RuleViolated] | None = None
    refused: ImplicationRefused | None = None


class RecordWanted(msgspec.Struct, frozen=True):
    """The last record of a stream has to be read."""

    stream: Stream


class _Row(msgspec.Struct, gc=False, eq=False):
    """An event of the append. `number` is that of its stream among the append's, `own` that of the request's
    event that it goes back to."""

    stream: Stream
    number: int
    event: Event
    own: int
    level: int
    path: str
    tags: tuple[str, ...]
    found: Admitted | None = None
    """Of an implied event."""
    fresh: bool = False
    """Whether its aggregate's key was made for it, at random."""


class SchemaWork(msgspec.Struct):
    """What the schemas of all that one append makes may take, and what they took, in comparisons: as those of
    a request's own events."""

    most: int = SCHEMA_WORK_MAX
    taken: int = 0

    def take(self, event_type: EventType, data: bytes) -> None:
        """Before the data are checked. Raises NotAdmitted."""
        self.taken += event_type.compiled.work(data)
        if self.taken > self.most:
            raise NotAdmitted("schema_violation", too_much_work(event_type, self.most), "data")


_Steps: TypeAlias = "Generator[Stream | RecordWanted, None, Judged]"


class BeingRemoved(Exception):
    """What an event implies is being removed from the spec, or stays: that is not known yet."""


class _Refused(Exception):
    def __init__(self, refused: ImplicationRefused) -> None:
        self.refused = refused


class Judging(msgspec.Struct, eq=False):
    """One append by one spec. `states` are those of its aggregates that were read."""

    append: Append
    deployed: Deployed
    bytes_max: int
    event_bytes_max: int
    states: dict[Stream, Folded] = {}
    records: dict[Stream, tuple[int, Record | None]] = {}
    """Of its aggregates whose last record was read: their lengths then, and that record."""
    work: SchemaWork = msgspec.field(default_factory=SchemaWork)
    _under_way: tuple[int | None, _Steps] | None = None

    def run(self, at_once: int | None = None) -> Judged | Stream | RecordWanted:
        """The stream whose state, or whose last record, has to be read first; or the verdict. The next run
        continues where this one stopped, unless its `at_once` is another. Raises BeingRemoved, and TakesLong
        where that bounds what all of it may test, since everything else waits."""
        under_way, self._under_way = self._under_way, None
        if under_way is None or under_way[0] != at_once:
            under_way = at_once, self._steps(at_once)
        try:
            wanted = next(under_way[1])
        except StopIteration as ended:
            return cast("Judged", ended.value)
        self._under_way = under_way
        return wanted

    def _steps(self, at_once: int | None) -> _Steps:
        append, budgets = self.append, Budgets.of(self.bytes_max, at_once)
        self.work.taken = 0
        types = self.deployed.reading.aggregate_types
        rows = _own_rows(append)
        spread = append.spread
        numbers = {append.stream: 0} if spread is None else {each: n for n, each in enumerate(spread.streams)}
        tips: dict[Stream, Folded] = {}
        pinned: dict[int, int] = {}
        last: dict[Stream, Record | None] = {}
        for row in rows:  # behind which comes what they imply
            declared = types.get(row.stream.aggregate_type)
            if declared is None:
                continue
            number = row.number
            if declared.identity is not None:
                if row.level and row.stream not in last:
                    while (before := self.records.get(row.stream)) is None:
                        yield RecordWanted(row.stream)
                    if not self._fits(number, before[0]):
                        return Judged(append, {number: _NO_LENGTH})
                    length, last[row.stream] = before
                    pinned[number] = min(pinned.get(number, length), length)
                _grade(row, declared.identity, last)
            if not (declared.by_state or declared.implies):
                continue
            tip = tips.get(row.stream) if declared.by_state else EMPTY
            if tip is None:
                while (state := self.states.get(row.stream)) is None:
                    yield row.stream
                if not self._fits(number, state.length):
                    # It may have come to that length since, and is not judged at it.
                    return Judged(append, {number: _NO_LENGTH})
                # Its last record may have been read at another length: the smaller one is a conflict then.
                pinned[number], tip = min(pinned.get(number, state.length), state.length), state
            verdict = self._verdict(tip, row, budgets) if declared.by_state else tip
            if isinstance(verdict, Violation):
                if row.level == 0:
                    n = row.own
                    violated = RuleViolated(n, verdict.rule, verdict.error, self.states[row.stream].length)
                    return Judged(append, pinned, (number, violated))
                return Judged(append, pinned, refused=self._rule_refuses(row, verdict))
            if declared.by_state:
                tips[row.stream] = verdict
            event_type = declared.events.get(row.event.type)
            if event_type is None or not event_type.implies:
                continue
            try:
                implied = self._implied(row, event_type, verdict, len(rows), budgets)
            except _Refused as refused:
                return Judged(append, pinned, refused=refused.refused)
            for each in implied:
                each.number = numbers.setdefault(each.stream, len(numbers))
            rows += implied
        try:
            return Judged(self._whole(rows, numbers), pinned)
        except _Refused as refused:
            return Judged(append, pinned, refused=refused.refused)

    def _fits(self, number: int, length: int) -> bool:
        """Whether a stream of that number may have that length, as the append asks."""
        lengths = self.append.lengths
        return number >= len(lengths) or fits(lengths[number], length)

    def _verdict(self, tip: Folded, row: _Row, budgets: Budgets) -> Folded | Violation:
        of_type = row.stream.aggregate_type
        handlers = Handlers(self.deployed, of_type)
        events = handlers.presented((Recorded(row.stream, tip.length + 1, row.event),))
        return judge_within(tip, events, Rules(self.deployed, of_type), handlers, budgets)

    def _rule_refuses(self, row: _Row, verdict: Violation) -> ImplicationRefused:
        length = self.states[row.stream].length
        return ImplicationRefused(row.own, "rule_violated", verdict.error, row.path, row.stream, length)

    def _implied(
        self, row: _Row, event_type: EventType, after: Folded, count: int, budgets: Budgets
    ) -> list[_Row]:
        """Raises _Refused."""
        recorded = Recorded(row.stream, after.length, row.event)
        room = IMPLIED_MAX - (count - len(self.append.events))
        view = view_of(recorded, after.data_json, budgets.judging)
        found = emitted(view, event_type.implications, room)
        base = f"{row.path}." if row.path else ""
        if isinstance(found, Unfit):
            code: Code = "invalid_identifier" if found.identifies else "schema_violation"
            raise _Refused(ImplicationRefused(row.own, code, found.error, f"{base}{found.path}"))
        if found and row.level == LEVELS_MAX:
            why = f"Implied events go at most {LEVELS_MAX} levels deep."
            raise _Refused(ImplicationRefused(row.own, "invalid_field", why, f"{base}{found[0].path}"))
        if len(found) > room:
            why = f"One append implies at most {IMPLIED_MAX} events."
            raise _Refused(ImplicationRefused(row.own, "invalid_field", why, f"{base}{found[-1].path}"))
        return [
            self._row(row, n, each, f"{base}{each.path}", budgets.judging) for n, each in enumerate(found)
        ]

    def _row(self, cause: _Row, number: int, each: Emitted, path: str, budget: Budget) -> _Row:
        """Raises _Refused, BeingRemoved, and TakesLong where its schema takes more to check it than may be
        done at once."""
        of = self.deployed.spec.aggregate_types.get(each.emit.aggregate_type)
        event_type = None if of is None else of.events.get(each.emit.event_type)
        if of is None or event_type is None:
            raise BeingRemoved
        event_id = derived_id(cause.event.id, number)
        if budget.at_once is not None:
            if not event_type.is_light(each.data):
                raise TakesLong
            work = values_in(each.data) * event_type.compiled.weight
            budget.work(AT_ONCE_LOOKS * work // AT_ONCE_WORK_MAX)
        tenant = cause.stream.tenant
        try:
            found = admitted(
                self.deployed,
                tenant,
                of,
                event_type,
                each.id,
                each.data,
                event_id,
                self.event_bytes_max,
                self.work,
            )
        except NotAdmitted as fault:
            refused = ImplicationRefused(cause.own, fault.code, fault.error, f"{path}.{fault.path}")
            raise _Refused(refused) from fault
        by = cause.event
        event = Event(  # in the order of the fields
            event_id, event_type.name, by.actor_type, by.actor_id, None, None, by.correlation_id, by.id,
            self.deployed.revision, by.recorded_at_ms, None, each.data,
        )  # fmt: skip
        if event_type.revision != 1:
            event = revised(event, event_type.revision)
        fresh = each.id is None and of.at_random and _at_random(self.append)
        return _Row(found.stream, 0, event, cause.own, cause.level + 1, path, found.tags, found, fresh)

    def _whole(self, rows: list[_Row], numbers: Mapping[Stream, int]) -> Append:
        append = self.append
        implied = len(rows) - len(append.events)
        if not implied:
            return append
        streams = tuple(numbers)
        if len(streams) > AGGREGATES_MAX:
            why = f"With its implied events the append has {len(streams)} aggregates, over {AGGREGATES_MAX}."
            raise _Refused(ImplicationRefused(rows[-1].own, "invalid_field", why, rows[-1].path))
        others, spread = append.others, append.spread
        if len(streams) > 1:
            others += (ANY_LENGTH,) * (len(streams) - 1 - len(others))
            spread = Spread(streams, tuple([row.number for row in rows]))
        events: list[Event] = []
        tags, fresh = append.tags, append.fresh
        claims, claim_paths = append.claims, append.claim_paths
        for row in rows[-implied:]:
            found = row.found
            assert found is not None
            if row.tags or tags:
                tags = (*(tags or ((),) * (len(rows) - implied + len(events))), row.tags)
            if row.fresh:
                fresh = (*fresh, row.number)
            if found.event_type.claims or found.event_type.releases:
                of_row = self._claims(row, found, len(append.events) + len(events))
                claims, claim_paths = (*claims, *of_row[0]), (*claim_paths, *of_row[1])
            events.append(row.event)
        return with_implied(append, events, spread, others, tags, claims, claim_paths, fresh)

    def _claims(self, row: _Row, found: Admitted, n: int) -> tuple[list[Claim], list[str]]:
        """Raises _Refused."""
        try:
            claims, paths = found.claims(n)
        except NotAdmitted as fault:
            refused = ImplicationRefused(row.own, fault.code, fault.error, f"{row.path}.{fault.path}")
            raise _Refused(refused) from fault
        place = row.path if self.append.is_single else f"events[{row.own}].{row.path}"
        return claims, [f"{place}.{path}" for path in paths]


class NotAdmitted(Exception):
    """`code` of the table of refusals, and the path within what is emitted."""

    def __init__(self, code: Code, error: str, path: str) -> None:
        super().__init__(error)
        self.code, self.error, self.path = code, error, path


class Admitted(msgspec.Struct, frozen=True):
    """An event that the spec takes: whose it is, and its tags."""

    deployed: Deployed
    stream: Stream
    event_type: EventType
    tags: tuple[str, ...]
    value: object

    def claims(self, n: int) -> tuple[list[Claim], list[str]]:
        """As event number `n` of an append, and their paths. Raises NotAdmitted."""
        salt, of_type = self.deployed.salt, self.stream.aggregate_type
        found = claims_of(self.event_type, of_type, n, self.value, self.stream.tenant, salt)
        if isinstance(found, TagFault):
            raise NotAdmitted("invalid_claim", found.error, f"data{found.path}")
        return found[0], [f"data{path}" for path in found[1]]


def admitted(
    deployed: Deployed,
    tenant: bytes,
    of: AggregateType,
    event_type: EventType,
    identifier: str | None,
    data: bytes,
    event_id: bytes,
    event_bytes_max: int,
    work: SchemaWork,
) -> Admitted:
    """Of an event that the gateway makes; without an identifier it is of a new aggregate. Raises
    NotAdmitted."""
    if of.mint == "content" and (identifier is None or not is_overlay(identifier)):
        raise NotAdmitted("invalid_identifier", made_by_content(of.name), "id")
    singletons = deployed.spec.singletons
    key = _minted(of, event_id) if identifier is None else canonicalize(identifier, singletons)
    if key is None:
        why = bad_identifier(identifier or "", deployed.spec, "id").error
        raise NotAdmitted("invalid_identifier", why, "id")
    if len(data) > event_bytes_max:
        why = f"The data has {len(data)} bytes; the limit is {event_bytes_max}."
        raise NotAdmitted("schema_violation", why, "data")
    work.take(event_type, data)
    value = decode_made(data)
    if isinstance(value, Malformed):
        raise NotAdmitted("schema_violation", value.reason, "data")
    violation = event_type.violation(value)
    if violation is not None:
        raise NotAdmitted("schema_violation", violation.message, violation.under("data"))
    tags = tags_of(event_type.tags, value, deployed.salt) if event_type.tags else ()
    if isinstance(tags, TagFault):
        raise NotAdmitted("invalid_tag", tags.error, f"data{tags.path}")
    return Admitted(deployed, Stream(tenant, of.name, key), event_type, tags, value)


def _at_random(append: Append) -> bool:
    """Whether what is made of the ids of its own events is made for this append: a client may have chosen
    them, and those of reactions are the same each time."""
    events = append.events
    if append.retry.chosen_events:
        return False
    return events[0].id[6] >> 4 == 7 and (len(events) == 1 or all(each.id[6] >> 4 == 7 for each in events))


def _own_rows(append: Append) -> list[_Row]:
    spread, events = append.spread, append.events
    if len(events) == 1:  # as nearly always
        return [_Row(append.stream, 0, events[0], 0, 0, "", append.tags[0] if append.tags else ())]
    tags = append.tags or ((),) * len(events)
    if spread is None:
        return [_Row(append.stream, 0, each, n, 0, "", tags[n]) for n, each in enumerate(append.events)]
    return [
        _Row(spread.stream_of(n), spread.order[n], each, n, 0, "", tags[n])
        for n, each in enumerate(append.events)
    ]


def _grade(row: _Row, identity: IdentityRule, last: dict[Stream, Record | None]) -> None:
    """Says of an implied event what became of the record, against the last one of its aggregate. Of the
    request's own events that is said already."""
    if row.found is None:
        _, own, _ = split(row.event.extra)
        if own is not None:
            last[row.stream] = Record(own.content, own.context)
        return
    record = record_of(identity, row.found.value, row.stream.key, row.event.type)
    said = None
    if record is not None:
        grade = record.graded(last[row.stream]).value
        said, last[row.stream] = RecordSaid(record.content, record.context, grade), record
    row.event = msgspec.structs.replace(row.event, extra=with_record(None, said))


def _minted(aggregate_type: AggregateType, event_id: bytes) -> str:
    """For a new aggregate: the same each time that its event is judged."""
    derived = derived_id(event_id, 0)
    if aggregate_type.mint == "humane":
        return mint_humane(derived[:HUMANE_RANDOM_BYTES])  # before the bits that say a UUID's version
    return uuid_text(derived)

"""POST /_/import: records of a foreign system, each one event of its aggregate where it says something new.

Owns how records are read, judged, appended and told. Which aggregate a record is: gateway/names/imported.py.
An event's id follows from its aggregate and the count of its records, so a repeat appends nothing; and it is
appended at a length that was read while no later record of the aggregate was known, so none comes behind one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.admit.address import undeclared_event, undeclared_type
from gateway.admit.append import EventContext, Fault
from gateway.admit.line import Creation, judge_line
from gateway.admit.strict_json import Malformed, decode
from gateway.aggregates.records import Records
from gateway.appends import Append, Appended, make_append, make_retry
from gateway.aside import Aside, Busy
from gateway.catalog.catalog import Catalog
from gateway.catalog.imports import Import
from gateway.catalog.model import Deployed, Principal
from gateway.config import Config
from gateway.derived_ids import derived_id
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.http.api.appends import EventContexts, minted_key
from gateway.http.api.bulk import NDJSON, of_one_append
from gateway.http.api.bulk_responses import as_line
from gateway.http.api.reads import unavailable
from gateway.http.correlation import correlation_id_of
from gateway.http.outcomes import Answer, Outcomes, refused
from gateway.http.parameters import Parameters, uuid_of
from gateway.http.render import encode
from gateway.http.request import Head, Refused, check_json_body, read_body
from gateway.http.response import PRIVATE
from gateway.log.log import Log
from gateway.names.content import content_of_json
from gateway.names.encoding import encode as framed
from gateway.names.imported import Result, Row, Said, Step
from gateway.names.source_ids import Unusable, read
from gateway.outcomes import Conflict, Outcome, Unchanged
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from spec.identifiers import uuid_text
from spec.model import AggregateType

RECORDS_MAX: Final = 1_000
"""Of one request: a tenth of the events that may be under way."""
TRIES: Final = 5
"""Of a record whose aggregate others append to meanwhile."""
AT_A_TIME: Final = 64
"""Appends that are begun in one go, a few milliseconds; then other requests have their turn."""
_KNOWN: Final = "records are known again by their refs and contents, and none is appended on a condition"
IMPORTER: Final = ("system_importer", "test_data_importer")
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class _Asked(msgspec.Struct, frozen=True):
    declared: AggregateType
    event: str
    ref: str | None
    actor: tuple[str, str] | None
    id: UUID
    only_refs: bool
    dry_run: bool


class _Line(msgspec.Struct, frozen=True):
    """A record: what it says and the append that it would be, or why it can't be one."""

    number: int
    ref: str | None = None
    said: Said | None = None
    append: Append | None = None
    refusal: Refusal | None = None


class _Owed(msgspec.Struct, frozen=True):
    row: Row
    judged: Append


_Settled = tuple[Append, Outcome] | None
"""None: a later record of the aggregate was faster."""


class Imports:
    def __init__(
        self,
        log: Log,
        records: Records,
        catalog: Catalog,
        shares: Shares,
        outcomes: Outcomes,
        aside: Aside,
        config: Config,
    ) -> None:
        self._log = log
        self._records = records
        self._catalog = catalog
        self._shares = shares
        self._outcomes = outcomes
        self._aside = aside
        self._config = config
        self._contexts = EventContexts(log, catalog, config)
        self._turns: WeakValueDictionary[tuple[UUID, str], asyncio.Lock] = WeakValueDictionary()

    async def post(self, request: Request) -> Response:
        """A line for each record, in their order."""
        principal: Principal = request.scope["sluice.principal"]
        head, tenant = Head(request.scope), principal.tenant.id
        deployed = self._catalog.deployed(tenant)
        asked = _asked(request, deployed)
        refusal = of_one_append(head, _KNOWN) or check_json_body(head, self._config.body_bytes_max, NDJSON)
        if refusal is not None:
            raise Refused(refusal)
        body = await read_body(request.receive, self._config.body_bytes_max, self._config.body_timeout_s)
        if self._catalog.deployed(tenant) is not deployed:  # the body came slowly
            deployed = self._catalog.deployed(tenant)
            asked = _asked(request, deployed)
        correlation_id = bytes.fromhex(correlation_id_of(head).replace("-", ""))
        context = self._contexts.of(tenant, deployed, correlation_id, importing=asked.actor is None)
        work = partial(_read, asked, deployed, context, body)
        try:
            lines = await self._aside.run(tenant.bytes, work)
            told = await self._imported(tenant, asked, lines)
        except Busy as busy:
            raise Refused(Refusal("not_committed", busy.why)) from busy
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        headers = {"sluice-api": "1", **{name.decode(): value.decode() for name, value in PRIVATE}}
        return Response(b"".join(told), 200, headers, media_type=NDJSON.decode())

    async def _imported(self, tenant: UUID, asked: _Asked, lines: Sequence[_Line]) -> list[bytes]:
        imported = Import(self._shares.of(tenant.bytes), tenant, asked.declared.name, asked.id)
        refs = [each.ref for each in lines if each.ref is not None]
        if asked.only_refs:
            await imported.stand(refs)
            return []
        good = [each for each in lines if each.said is not None]
        said = [each.said for each in good if each.said is not None]
        mint_key = partial(minted_key, asked.declared)
        turn = self._turns.setdefault((tenant, asked.declared.name), asyncio.Lock())
        async with turn:  # those that wait for each other take one connection
            steps = await imported.match(said, refs, mint_key, keep=not asked.dry_run)
        found = {line.number: step for line, step in zip(good, steps, strict=True)}
        settled: dict[str, _Settled] = {}
        if not asked.dry_run:
            owed = [
                _Owed(step.row, line.append)
                for line, step in zip(good, steps, strict=True)
                if step is not None and step.owed and line.append is not None
            ]
            settled = await self._appended(tenant, asked, imported, owed)
        return [await self._told(asked, each, found.get(each.number), settled) for each in lines]

    async def _appended(
        self, tenant: UUID, asked: _Asked, imported: Import, owed: Sequence[_Owed]
    ) -> dict[str, _Settled]:
        """What became of each, by its key."""
        settled: dict[str, _Settled] = {}
        left = list(owed)
        for again in range(TRIES):
            if not left:
                break
            streams = [Stream(tenant.bytes, asked.declared.name, each.row.key) for each in left]
            lengths = await asyncio.gather(
                *[
                    self._length(stream, known=not again and each.row.times == 1)
                    for stream, each in zip(streams, left, strict=True)
                ]
            )
            current = await imported.current([each.row for each in left])
            settled |= {each.row.key: None for each in left if each.row.key not in current}
            begun: dict[str, tuple[Append, asyncio.Future[Outcome]]] = {}
            for n, (each, stream, length) in enumerate(zip(left, streams, lengths, strict=True), 1):
                if each.row.key in current:
                    append = _append(each, stream, length)
                    begun[each.row.key] = append, self._records.append(append)
                if n % AT_A_TIME == 0:
                    await asyncio.sleep(0)
            for key, (append, outcome) in begun.items():
                settled[key] = append, await outcome
            left = [each for each in left if _conflicts(settled[each.row.key])]
        done = [each.row for each in owed if _is_there(settled[each.row.key])]
        if done:
            await imported.appended(done)
        return settled

    async def _length(self, stream: Stream, *, known: bool) -> int:
        """Raises PostgresTrouble. `known`: there was no event before."""
        return 0 if known else await self._log.length(stream)

    async def _told(
        self, asked: _Asked, line: _Line, step: Step | None, settled: dict[str, _Settled]
    ) -> bytes:
        answer: Answer
        if line.refusal is not None:
            answer = refused(line.refusal)
        elif step is None:
            why = "An earlier line has other content for this ref; an import has one line for each ref."
            answer = refused(Refusal("invalid_field", why, asked.ref))
        elif asked.dry_run or step.row.key not in settled:
            answer = _result(step, None, dry_run=asked.dry_run)
        elif (found := settled[step.row.key]) is None:
            why = "The event will never appear: another import has written other content for this record."
            answer = refused(Refusal("not_committed", why))
        elif isinstance(found[1], Appended | Unchanged):
            answer = _result(step, found[1])
        else:
            answer = await self._outcomes.of_append(*found, minimal=True)
        return as_line(line.number, answer.status, answer.body, replayed=False)


def _append(owed: _Owed, stream: Stream, length: int) -> Append:
    """Known again by its event's id, wherever it is tried."""
    judged, row = owed.judged, owed.row
    cause = framed("sluice/import/1", stream.tenant.hex(), stream.aggregate_type, stream.key)
    event_id = derived_id(cause, row.times)
    return make_append(
        stream,
        (msgspec.structs.replace(judged.events[0], id=event_id),),
        length,
        make_retry(stream.tenant, None, (event_id,), row.content),
        judged.tags,
        claims=judged.claims,
        claim_paths=judged.claim_paths,
    )


def _conflicts(settled: _Settled) -> bool:
    return settled is not None and isinstance(settled[1], Conflict)


def _is_there(settled: _Settled) -> bool:
    return settled is not None and isinstance(settled[1], Appended | Unchanged)


def _result(step: Step, outcome: Appended | Unchanged | None, *, dry_run: bool = False) -> Answer:
    result = step.result
    if step.owed and isinstance(outcome, Appended) and outcome.first_version == 1:
        result = Result.NEW  # what was known of it before was never written
    told: dict[str, object] = {"ok": True, "result": result.value, "key": step.row.key}
    if dry_run and result == Result.NEW:
        told["key"] = None
    if step.was is not None:
        told["was"] = step.was
    if isinstance(outcome, Appended) and step.owed:
        told["event_id"] = uuid_text(outcome.event_ids[0])
    return Answer(201 if "event_id" in told else 200, encode(told))


def _asked(request: Request, deployed: Deployed | None) -> _Asked:
    """Raises Refused."""
    query = Parameters(request.scope["query_string"])
    name = query.text("type")
    if not name:
        raise Refused(Refusal("missing_field", "Name the type of the aggregates by `?type=`.", "type"))
    declared = None if deployed is None else deployed.spec.aggregate_types.get(name)
    if declared is None:
        raise Refused(undeclared_type(None if deployed is None else deployed.spec, name, status=422))
    if declared.mint == "content":
        why = f"Aggregates of {name!r} are made of their content: POST /{{type}} makes them."
        raise Refused(Refusal("invalid_field", why, "type"))
    event = query.text("event") or (next(iter(declared.events)) if len(declared.events) == 1 else None)
    if not event:
        why = f"{name!r} has several events; say by `?event=` which one a record becomes."
        raise Refused(Refusal("missing_field", why, "event"))
    if event not in declared.events:
        raise Refused(undeclared_event(event, declared, "event", status=422))
    actor = query.text("actor")
    kind, _, identity = (actor or "").partition(":")
    if actor is not None and not (kind and identity):
        raise Refused(Refusal("invalid_field", "`actor` is TYPE:ID, such as `user:global`.", "actor"))
    given = query.text("import")
    return _Asked(
        declared,
        event,
        query.text("ref") or None,
        None if actor is None else (kind, identity),
        uuid4() if given is None else uuid_of(given, "import"),
        query.boolean("only_refs"),
        query.boolean("dry_run"),
    )


def _read(asked: _Asked, deployed: Deployed | None, context: EventContext, body: bytes) -> list[_Line]:
    """Raises Refused."""
    lines = [(n, line) for n, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    if len(lines) > RECORDS_MAX:
        raise Refused(Refusal("too_large", f"At most {RECORDS_MAX} records are read at a time."))
    actor = dict(zip(("type", "id"), asked.actor or IMPORTER, strict=True))
    common = {
        "aggregate_type": asked.declared.name,
        "key": minted_key(asked.declared),
        "type": asked.event,
        "metadata": msgspec.Raw(_encode({"actor": actor})),
    }
    return [_line(asked, deployed, context, common, n, line) for n, line in lines]


def _line(
    asked: _Asked,
    deployed: Deployed | None,
    context: EventContext,
    common: dict[str, Any],
    number: int,
    text: bytes,
) -> _Line:
    value: Any = decode(text)
    if isinstance(value, Malformed):
        reason = value.reason.replace("The body", "The line", 1)
        return _Line(number, refusal=Refusal("invalid_json", reason))
    if not isinstance(value, dict):
        return _Line(number, refusal=Refusal("invalid_field", "A record is an object."))
    ref = None
    external = None if asked.ref is None else value.get(asked.ref)
    if external is not None:
        source = read("import", asked.declared.name, external)
        if isinstance(source, Unusable):
            return _Line(number, refusal=Refusal("invalid_field", source.reason, asked.ref))
        ref = source.source_id
    if asked.only_refs:
        return _Line(number, ref)
    members = _decode_members(text)
    if asked.ref is not None:
        members.pop(asked.ref, None)
    data = _encode(members)
    line = _encode({**common, "data": msgspec.Raw(data)})
    judged = judge_line(None if deployed is None else deployed.spec, line, context, {})
    if isinstance(judged, Fault):
        return _Line(number, ref, refusal=judged.refusal)
    content = content_of_json(b"[%b,%b]" % (_encode(asked.event), data), strict=True)
    append = judged.otherwise if isinstance(judged, Creation) else judged
    return _Line(number, ref, Said(ref, bytes.fromhex(content)), append)

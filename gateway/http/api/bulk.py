"""POST /_/bulk: NDJSON in, NDJSON out, one independent append a line.

Owns: reading and answering at the same time; and that other requests get their turn meanwhile. What is
between the two, the order of the lines of one aggregate, and how much of all that is held: bulk_run.py.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from gateway.admit.append import EventContext, Fault
from gateway.admit.envelope import Shared
from gateway.admit.line import (
    NO_ALIASES,
    Creation,
    Keys,
    OfSeveral,
    SeveralLine,
    is_light,
    is_several,
    judge_line,
    judge_several_line,
)
from gateway.admit.several import with_sources
from gateway.admit.several_names import first_type, names_sent
from gateway.aggregates.records import Records
from gateway.appends import Append
from gateway.aside import Aside, Busy
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.http import response
from gateway.http.api.aliases import Aliases
from gateway.http.api.appends import EventContexts, minted_key
from gateway.http.api.bulk_responses import PIECE_BYTES, ConditionMissed, Doubted, Missed, as_line
from gateway.http.api.bulk_run import Broken, Line, Run
from gateway.http.api.several import place_in, receipt_of_several
from gateway.http.api.source_keys import SOURCE, NamedLine, Names, SourceKeys
from gateway.http.correlation import correlation_id_of
from gateway.http.key_watch import KeyWatch, Watched
from gateway.http.outcomes import Answer, Outcomes, refused, unforeseen
from gateway.http.request import ClientGone, Head, Receive, Refused, Scope, Send, check_json_body
from gateway.log.log import Log
from gateway.names.aliases import SIGIL, alias_in
from gateway.outcomes import NotCommitted
from spec.identifiers import canonicalize
from spec.model import Spec

logger = logging.getLogger("sluice.edge")

LINES_MAX = 100_000
_AT_A_TIME = 32
"""Lines that are judged in one go, about half a millisecond. Then whatever Redis, Postgres and other clients
have sent has its turn: both servers would wait for a gateway that continues reading."""
_JUDGED_S = 0.004
"""The same for lines that take longer than most."""
NDJSON = b"application/x-ndjson"
_NOT_COMMITTED = 503


Foreign = Mapping[bytes, NamedLine | Fault]
"""By its text, each line that names a foreign id: with its key, or why there is none."""

Meant = tuple[Keys, Foreign]


@dataclass(slots=True)
class _Request:
    principal: Principal
    key: Watched
    correlation_id: str
    run: Run
    line_failed: bool = False

    def log_line_failed(self) -> None:
        """A bug of ours, the first of the request: one that every line meets would fill the log."""
        if not self.line_failed:
            self.line_failed = True
            self.log_failed()

    def log_failed(self) -> None:
        """Called where an exception is handled."""
        told = {"method": "POST", "correlation_id": self.correlation_id}
        logger.exception("request_failed", extra=told)


class Bulk:
    def __init__(
        self,
        log: Log,
        records: Records,
        catalog: Catalog,
        keys: KeyWatch,
        outcomes: Outcomes,
        aliases: Aliases,
        aside: Aside,
        sources: SourceKeys,
        config: Config,
    ) -> None:
        self._sources = sources
        self._log = log
        self._records = records
        self._aside = aside
        self._catalog = catalog
        self._keys = keys
        self._outcomes = outcomes
        self._aliases = aliases
        self._bulk_bytes_max = config.bulk_bytes_max
        self._line_bytes_max = config.body_bytes_max
        self._contexts = EventContexts(log, catalog, config)
        too_large = f"The line is larger than {self._line_bytes_max} bytes."
        self._too_large = Fault(Refusal("too_large", too_large), None)

    async def bulk(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        head = Head(scope)
        correlation_id = correlation_id_of(head)
        correlated = (b"x-correlation-id", correlation_id.encode())
        refusal = of_one_append(head, _SAYS) or check_json_body(head, self._bulk_bytes_max, NDJSON)
        if refusal is not None:
            await response.refuse(send, refusal, [correlated])
            return
        run = Run(partial(self._records.append_each, principal.tenant.id.bytes))
        headers = [(b"content-type", NDJSON), correlated, response.API_VERSION, *response.PRIVATE]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with self._keys.watching(head) as key:
            request = _Request(principal, key, correlation_id, run)
            reading = asyncio.get_running_loop().create_task(self._read(request, receive))
            try:
                await self._answer(request, send)
            finally:
                # What was handed over by a client that hung up is still appended; nothing more is read for
                # them.
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    # -- reading

    async def _read(self, request: _Request, receive: Receive) -> None:
        run, number = request.run, 0
        try:
            async for several in lines(receive, self._bulk_bytes_max, self._line_bytes_max):
                at = 0
                while at < len(several):
                    if number == LINES_MAX:
                        if any(line is None or line.strip() for line in several[at:]):
                            raise Refused(_TOO_MANY)
                        break
                    await run.room()
                    if request.key.ended:
                        raise Refused(request.key.ended)
                    part = several[at : at + min(_AT_A_TIME, LINES_MAX - number)]
                    meant = await self._named(request, part), await self._foreign(request, part)
                    judged, count = self._judge(request, part, number + 1, meant)
                    if not count:
                        judged, count = await self._judged_aside(request, part[0], number + 1, meant), 1
                    run.add(judged)
                    number, at = number + count, at + count
                    await asyncio.sleep(0)
            run.end(None)
        except Refused as stop:
            run.end(Line(number + 1, Fault(stop.refusal, None)))
        except ClientGone:
            run.end(None)
        except Exception:
            run.end(Line(number + 1, NotCommitted("the gateway failed to read further")))
            request.log_failed()

    async def _named(self, request: _Request, several: Sequence[bytes | None]) -> Keys:
        """What the keys of lines that are aliases name. Raises Refused where that can't be told now."""
        found: dict[tuple[str, str], str | Refusal] = {}
        for line in several:
            if line is None or _MAY_BE_ALIAS.search(line) is None:
                continue
            deployed = self._catalog.deployed(request.principal.tenant.id)
            if deployed is None:
                continue
            for aggregate_type, key in _all_named_in(line):
                if (aggregate_type, key) in found or alias_in(key, deployed.spec, aggregate_type) is None:
                    continue
                text = SIGIL + key.removeprefix(SIGIL)
                meant = await self._aliases.exact(request.principal, aggregate_type, text)
                found[aggregate_type, key] = meant
        return found or NO_ALIASES

    async def _foreign(self, request: _Request, several: Sequence[bytes | None]) -> Foreign:
        """What the foreign ids of lines stand for, which name one in place of a key."""
        wanted = [line for line in several if line is not None and SOURCE in line]
        if not wanted:
            return {}
        spec, _ = self._minting(request)
        return await self._sources.of_lines(request.principal.tenant.id, spec, wanted)

    def _judge(
        self, request: _Request, several: Sequence[bytes | None], number: int, meant: Meant
    ) -> tuple[list[Line], int]:
        """By the spec and the clock of this moment, and how many it was: it ends after _JUDGED_S, and before
        one that takes long by itself. `number` is that of the first; empty ones are none."""
        spec, minting = self._minting(request)
        judged = []
        known: dict[bytes, Shared] = {}
        ends = time.perf_counter() + _JUDGED_S
        for n, line in enumerate(several, number):
            if line is None:
                judged.append(Line(n, self._too_large))
            elif not is_light(spec, line):
                return judged, n - number
            elif line.strip():
                judged.append(self._judged(request, spec, minting, line, known, n, meant))
            if time.perf_counter() > ends:
                return judged, n - number + 1
        return judged, len(several)

    async def _judged_aside(
        self, request: _Request, line: bytes | None, number: int, meant: Meant
    ) -> list[Line]:
        """The one line that takes long."""
        assert line is not None
        spec, minting = self._minting(request)
        work = partial(self._judged, request, spec, minting, line, {}, number, meant)
        try:
            return [await self._aside.run(request.principal.tenant.id.bytes, work)]
        except Busy as busy:
            failed = _named_by(minting.tenant, spec, line, meant)
            return [Line(number, NotCommitted(busy.why.rstrip(".")), failed=failed)]

    def _minting(self, request: _Request) -> tuple[Spec | None, EventContext]:
        deployed = self._catalog.deployed(request.principal.tenant.id)
        correlation_id = bytes.fromhex(request.correlation_id.replace("-", ""))
        minting = self._contexts.of(request.principal.tenant.id, deployed, correlation_id)
        return None if deployed is None else deployed.spec, minting

    def _judged(
        self,
        request: _Request,
        spec: Spec | None,
        minting: EventContext,
        line: bytes,
        known: dict[bytes, Shared],
        number: int,
        meant: Meant,
    ) -> Line:
        keys, foreign = meant
        sent = line
        named, source = foreign.get(line), None
        sources: Mapping[int, Names] = {}
        unnamed: Refusal | None = None
        if isinstance(named, Fault):
            return Line(number, named)
        if named is not None:
            line, source, sources, unnamed = named
        judged: Append | Creation | SeveralLine | Fault
        try:
            if is_several(line):
                of = OfSeveral(minted_key, partial(place_in, self._log, minting.tenant), keys)
                several = judge_several_line(spec, line, minting, of)
                if not isinstance(several, Fault):
                    several = several._replace(append=with_sources(several.append, sources))
                judged, first = several, first_type(line)
            else:
                judged, first = judge_line(spec, line, minting, known, keys, source), None
            if unnamed is not None and not isinstance(judged, Fault):
                judged = Fault(unnamed, None)
        except Exception:
            request.log_line_failed()
            return Line(number, Broken(), failed=_named_by(minting.tenant, spec, sent, meant))
        failed: tuple[Stream, ...] = ()
        if isinstance(judged, Fault) and judged.refusal.http_status == _NOT_COMMITTED:
            failed = _named_by(minting.tenant, spec, sent, meant)
        return Line(number, judged, first, failed)

    # -- answering

    async def _answer(self, request: _Request, send: Send) -> None:
        async for several in request.run.settled():
            piece: list[bytes] = []
            for told in several:
                if isinstance(told, bytes):
                    piece.append(told)
                    continue
                piece.append(await self._look_up(request, told))
                if len(piece[-1]) >= PIECE_BYTES:
                    await send({"type": "http.response.body", "body": b"".join(piece), "more_body": True})
                    piece.clear()
            await send({"type": "http.response.body", "body": b"".join(piece), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _look_up(self, request: _Request, told: Missed | ConditionMissed | Doubted) -> bytes:
        answer: Answer
        try:
            match told:
                case Doubted(fault=fault):
                    answer = await self._outcomes.of_fault(fault, batch=told.first_type is not None)
                    if told.first_type is not None:
                        answer = receipt_of_several(answer, told.first_type)
                case ConditionMissed():
                    answer = await self._outcomes.of_condition(told.tenant, told.condition, minimal=False)
                case Missed(stream=stream, expected=expected, length=length):
                    answer = await self._outcomes.of_conflict(
                        stream, expected, length, minimal=False, path=told.path
                    )
        except Exception:
            request.log_line_failed()
            answer = refused(unforeseen("POST"))
        return as_line(told.number, answer.status, answer.body, replayed=answer.replayed)


_OF_ONE_APPEND = ("Idempotency-Key", "X-Idempotency-Key", "If-Match", "If-None-Match", "Sluice-If-Unchanged")


_SAYS = "each line says `idempotency_key` and `metadata` by itself"


def of_one_append(head: Head, instead: str) -> Refusal | None:
    """Of a header that none of several appends has, and what they have `instead`. To ignore it would leave
    repeats without protection, or write what was to be written on a condition only."""
    for name in _OF_ONE_APPEND:
        if head.get(name.lower().encode()) is not None:
            return Refusal("bad_request", f"`{name}` is of one append: {instead}.", name)
    return None


_MAY_BE_ALIAS = re.compile(rb'"key"[ \t]*:[ \t]*"(?:@|[A-Za-z][A-Za-z0-9]{1,9}-[0-9A-Za-z.]+")')
"""What a line has somewhere whose key is an alias; nearly no other line has it."""


class _Named(msgspec.Struct):
    aggregate_type: str
    key: str


def _named_by(tenant: bytes, spec: Spec | None, line: bytes, meant: Meant) -> tuple[Stream, ...]:
    """What a line that is not settled would append to, as far as that can be read."""
    keys, foreign = meant
    named = foreign.get(line)
    streams = []
    for aggregate_type, sent in _all_named_in(named[0] if isinstance(named, NamedLine) else line):
        key = keys.get((aggregate_type, sent), sent)
        canonical = None if spec is None or isinstance(key, Refusal) else canonicalize(key, spec.singletons)
        if canonical is not None:
            streams.append(Stream(tenant, aggregate_type, canonical))
    return tuple(streams)


def _all_named_in(line: bytes) -> list[tuple[str, str]]:
    """The aggregate types and keys that it names, as far as they can be read."""
    if is_several(line):
        return names_sent(line)
    named = _named_in(line)
    return [] if named is None else [(named.aggregate_type, named.key)]


def _named_in(line: bytes) -> _Named | None:
    try:
        return msgspec.json.decode(line, type=_Named)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_TOO_MANY = Refusal("too_large", f"At most {LINES_MAX} lines are read at a time.")


async def lines(
    receive: Receive, bytes_max: int, line_bytes_max: int
) -> AsyncIterator[Sequence[bytes | None]]:
    """The lines of a streamed body, as many at a time as a part of it ends; None for one that is larger than
    `line_bytes_max`, which is not kept.

    Raises Refused when the whole is larger than `bytes_max`, ClientGone when it breaks off.
    """
    rest, size, skipping, more = b"", 0, False, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        more = message.get("more_body", False)
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > bytes_max:  # what is whole until there counts, however it was cut into packets
            part = part[: bytes_max - size]
        ended = part.split(b"\n")
        following = ended.pop()
        if ended:
            ended[0] = rest + ended[0]
            kept = [None if len(line) > line_bytes_max else line for line in ended]
            if skipping:
                kept[0] = None
            yield kept
            rest, skipping = following, False
        elif not skipping:
            rest += following
        if size > bytes_max:
            raise Refused(
                Refusal("too_large", f"The body is larger than {bytes_max} bytes; send it in parts.")
            )
        if len(rest) > line_bytes_max:
            rest, skipping = b"", True
    if skipping or rest:
        yield [None if skipping else rest]

"""A webhook's way: handshake, signature, deliveries, appends, and what its sender is told.

Owns the order of work; a delivery becomes an event in appending.py. Whether it came before is the log's to
say, by the identity that its append claims: one atomic step, and no second store to race with. Must not know
Starlette.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import asyncpg
import msgspec
from uuid_utils import uuid7

from gateway.aggregates.records import Records
from gateway.appends import Append
from gateway.aside import Aside, Busy
from gateway.inbound import normalize
from gateway.inbound.appending import DeliveryAppends, KeyOf
from gateway.inbound.deliveries import Delivery, Unreadable, deliveries, header_fault, is_batch
from gateway.inbound.handshakes import Answered, Confirming, handshake
from gateway.inbound.normalize import Quarantine
from gateway.inbound.receipts import Item, Place, Receipt, batch_row, item_of, row_of, rows_of
from gateway.inbound.recorder import Recorder
from gateway.inbound.request import Request
from gateway.inbound.results import (
    FAILED,
    IGNORED,
    NO_CERTIFICATE,
    NO_POSTGRES,
    OTHER_BYTES,
    TOO_SLOW,
    Accepted,
    Deferred,
    Result,
    Told,
    judged,
)
from gateway.inbound.verdicts import Rejected, Uncertified, Verified
from gateway.inbound.verify.amazon import Amazon
from gateway.inbound.verify.signature import verify
from gateway.log.append.pending import ToldLater, ToldTogether
from gateway.log.log import Log
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tallies import WebhookCounts
from spec.violations import WEIGHT_MIN, is_light
from spec.webhooks.sources import Source

logger = logging.getLogger("sluice.intake")

Tell = Callable[[Accepted | Deferred], None]

_UNVERIFIED = b" unverified"


class _Waiting(ToldLater, gc=False, eq=False):
    """A delivery whose append is under way, and how its sender is answered."""

    receipt: Receipt
    delivery: Delivery
    counts: WebhookCounts
    tell: Tell


class Intake:
    def __init__(
        self,
        log: Log,
        records: Records,
        key_of: KeyOf,
        pool: asyncpg.Pool,
        recorder: Recorder,
        amazon: Amazon,
        aside: Aside,
        metrics: Metrics,
        answer_s: float,
        schema_work_max: int,
    ) -> None:
        self.appends = DeliveryAppends(log, records, key_of, pool, aside, schema_work_max)
        self._log, self._records, self._recorder, self._aside = log, records, recorder, aside
        self._amazon, self._metrics, self._answer_s = amazon, metrics, answer_s
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[_Waiting, None] = {}  # the oldest first
        self._settled = ToldTogether(self._tell_settled, self._fail)
        self._timer: asyncio.TimerHandle | None = None  # for all of them: one each would cost more
        self._finishing: set[asyncio.Task[None]] = set()

    async def receive(self, place: Place, request: Request) -> Result:
        """One request, to its end. Nothing is read from or written to a database before its signature is
        verified."""
        begun, now_ms = time.perf_counter(), time.time_ns() // 1_000_000
        counts = self._metrics.webhooks(place.tenant.name, place.source.name)
        try:
            asked, told = await self._told(place, request, now_ms)
        except Busy as busy:
            counts.deliveries["undecided"] += 1
            return Deferred(busy.why.rstrip("."), unknown=False)
        if isinstance(asked, Answered):
            counts.deliveries["handshake"] += 1
            return asked
        verdict = await self._certified(place, request, now_ms, told)
        if isinstance(verdict, Rejected):
            counts.refused[verdict.reason] += 1
            return verdict
        if isinstance(verdict, Deferred):
            counts.deliveries["undecided"] += 1
            return verdict
        counts.verified[verdict] += 1
        if asked is not None:
            confirmed = await self._confirmed(place, asked)
            counts.deliveries["handshake" if isinstance(confirmed, Answered) else "undecided"] += 1
            return confirmed
        batch = is_batch(place.source, request)
        receipt = Receipt(place, request, uuid7().bytes, now_ms, begun, verdict, batch)
        try:
            async with asyncio.timeout(self._answer_s):
                result = await self._take(receipt)
        except TimeoutError:
            result = TOO_SLOW
        except PostgresTrouble:
            result = NO_POSTGRES
        except Busy as busy:
            result = Deferred(busy.why.rstrip("."), unknown=False)
        if batch and isinstance(result, Deferred):  # some of its items may be committed
            result = replace(result, unknown=True)
        _count(counts, result, begun)
        return result

    def at_once(self, place: Place, request: Request, tell: Tell) -> bool:
        """Takes a delivery that waits for nothing but its append, without a task of its own, and `tell`s its
        result. False for any other request: nothing was done, `receive` judges it again."""
        source = place.source
        if source.items is not None or source.target.source_id is not None or place.plan.records:
            return False
        if not normalize.are_light(place.plan, (request.body,)):
            return False
        begun, now_ms = time.perf_counter(), time.time_ns() // 1_000_000
        if source.handshake is not None and handshake(source, request, now_ms) is not None:
            return False
        verdict = self._verdict(source, request, now_ms)
        if not isinstance(verdict, int):
            return False
        found = deliveries(source, request)
        if isinstance(found, Unreadable):
            return False
        (delivery,), headers = found, request.shown(source.headers)
        if source.target.selects and normalize.ignored(place.plan, found, headers)[0]:
            return False
        key = normalize.place(place.plan, delivery, headers)
        append = self.appends.compose(place, delivery, headers, key, now_ms) if isinstance(key, str) else None
        if not isinstance(append, Append) or self._log.storage.refusal(place.tenant_id) is not None:
            return False
        counts = self._metrics.webhooks(place.tenant.name, source.name)
        counts.verified[verdict] += 1
        receipt = Receipt(place, request, uuid7().bytes, now_ms, begun, verdict, batch=False)
        waiting = _Waiting(receipt, delivery, counts, tell, settled=self._settled.add)
        self._under_way[waiting] = None
        if self._timer is None:
            self._timer = self._loop.call_later(self._answer_s, self._look)
        spec = place.deployed.spec
        try:
            if spec.recorded or spec.ruled or spec.implies:
                self._records.append_each(place.tenant_id, ((append, waiting),))
            else:
                self._log.append_told(append, waiting)
        except Exception:  # the append may be queued, so that nothing is known of its outcome
            logger.exception("fast_path_failed", extra={"method": "POST"})
            del self._under_way[waiting]
            self._tell(waiting, FAILED)
        return True

    def _look(self) -> None:
        """Tells those that are due that it takes too long; looks again when the next one is."""
        self._timer, begun = None, time.perf_counter() - self._answer_s
        while self._under_way:
            oldest = next(iter(self._under_way))
            left_s = oldest.receipt.begun - begun
            if left_s > 0:
                self._timer = self._loop.call_later(left_s, self._look)
                return
            del self._under_way[oldest]
            self._tell(oldest, TOO_SLOW)

    def _tell_settled(self, waiting: _Waiting) -> None:
        if waiting not in self._under_way:  # its sender has the answer that it takes too long
            return
        del self._under_way[waiting]
        try:
            result = self._result_of(waiting)
        except Exception:
            self._tell(waiting, FAILED)
            raise
        if result is not None:
            self._tell(waiting, result)

    def _fail(self, _: _Waiting) -> None:
        """After a bug (within an `except`); the senders of the others get their answers."""
        logger.exception("fast_path_failed", extra={"method": "POST"})

    def _result_of(self, waiting: _Waiting) -> Accepted | Deferred | None:
        """None: it is told once its quarantine is written."""
        assert waiting.outcome is not None
        outcome = judged(waiting.outcome)
        if isinstance(outcome, Deferred):
            return outcome
        item = item_of(waiting.delivery, outcome)
        if item.held is None:
            self._recorder.keep(row_of(waiting.receipt, item))
            return Accepted((Told(item.event_id, item.duplicate, item.last),), batch=False)
        task = asyncio.create_task(self._quarantine_late(waiting, item))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return None

    async def _quarantine_late(self, waiting: _Waiting, item: Item) -> None:
        try:
            async with asyncio.timeout(self._answer_s):
                await self._quarantine(waiting.receipt, [item])
        except TimeoutError:
            self._tell(waiting, TOO_SLOW)
        except PostgresTrouble:
            self._tell(waiting, NO_POSTGRES)
        else:
            self._tell(waiting, Accepted((Told(None),), batch=False))

    def _tell(self, waiting: _Waiting, result: Accepted | Deferred) -> None:
        _count(waiting.counts, result, waiting.receipt.begun)
        waiting.tell(result)

    def greeted(self, place: Place, request: Request) -> Answered | None:
        """The answer to a handshake that is no delivery; None where the source has none for this request."""
        answered = handshake(place.source, request, time.time_ns() // 1_000_000)
        if not isinstance(answered, Answered):
            return None
        self._metrics.webhooks(place.tenant.name, place.source.name).deliveries["handshake"] += 1
        return answered

    async def _told(
        self, place: Place, request: Request, now_ms: int
    ) -> tuple[Answered | Confirming | None, int | Rejected | Uncertified]:
        """Which handshake it is, and its verdict. Both may read the body. A large one waits its turn among
        those of the tenant that are not verified either: they keep none of its own requests waiting. Raises
        Busy."""
        source = place.source

        def told() -> tuple[Answered | Confirming | None, int | Rejected | Uncertified]:
            asked = None if source.handshake is None else handshake(source, request, now_ms)
            answered = isinstance(asked, Answered)
            return asked, 0 if answered else self._verdict(source, request, now_ms)

        if is_light(request.body, WEIGHT_MIN):
            return told()
        return await self._aside.run(place.tenant_id + _UNVERIFIED, told)

    async def _certified(
        self, place: Place, request: Request, now_ms: int, verdict: int | Rejected | Uncertified
    ) -> int | Rejected | Deferred:
        """The verdict once the certificate that it takes is there, if it takes one."""
        if not isinstance(verdict, Uncertified):
            return verdict
        failed = await self._amazon.certify(verdict.url, _named(place))
        again = failed or self._verdict(place.source, request, now_ms)
        return NO_CERTIFICATE if isinstance(again, Uncertified) else again

    async def _confirmed(self, place: Place, asked: Confirming) -> Answered | Deferred:
        failed = await self._amazon.confirm(asked.url, _named(place))
        if failed is not None:
            return failed
        told = {"tenant": str(place.tenant.id), "source": place.source.name}
        logger.info("webhook_subscribed", extra=told)
        return Answered(b"")

    def _verdict(self, source: Source, request: Request, now_ms: int) -> int | Rejected | Uncertified:
        """The number of the secret that matched."""
        verdict = verify(source, request, now_ms, self._amazon.certificates)
        if not isinstance(verdict, Verified):
            return verdict
        return verdict.secret if header_fault(source, request) is None else Rejected("bad_header")

    # -- verified

    async def _take(self, receipt: Receipt) -> Accepted | Deferred:
        place, request = receipt.place, receipt.request
        reading = partial(deliveries, place.source, request)
        light = normalize.are_light(place.plan, (request.body,))
        found = reading() if light else await self._aside.run(place.tenant_id, reading)
        if isinstance(found, Unreadable):
            held = Quarantine(found.code, found.error)
            receipt = msgspec.structs.replace(receipt, batch=False)
            await self._quarantine(receipt, [Item(found.id, found.digest, 0, held, None, False)])
            return Accepted((Told(None),), batch=False)
        headers = receipt.request.shown(receipt.place.source.headers)
        ignored: Sequence[bool] = ()
        if place.source.target.selects:
            selecting = partial(normalize.ignored, place.plan, found, headers)
            ignored = selecting() if light else await self._aside.run(place.tenant_id, selecting)
            found = tuple([each for each, left_out in zip(found, ignored, strict=True) if not left_out])
        outcomes = await self.appends.append_all(receipt.place, found, headers)
        items = []
        for delivery, outcome in zip(found, outcomes, strict=True):
            if isinstance(outcome, Deferred):
                return outcome
            items.append(item_of(delivery, outcome))
        await self._keep(receipt, items)
        told = iter([Told(each.event_id, each.duplicate, each.last) for each in items])
        of_all = [IGNORED if left_out else next(told) for left_out in ignored] if ignored else told
        return Accepted(tuple(of_all), receipt.batch)

    async def _keep(self, receipt: Receipt, items: Sequence[Item]) -> None:
        if receipt.batch:
            await self._keep_batch(receipt, items)
        elif items and items[0].held is not None:
            await self._quarantine(receipt, items)
        elif items:
            self._recorder.keep(row_of(receipt, items[0]))

    async def _keep_batch(self, receipt: Receipt, items: Sequence[Item]) -> None:
        """The request once, in a row of its own, and a row an item; at once where one is in quarantine. Of an
        empty batch nothing is kept."""
        if not items:
            return
        held = [each for each in items if each.held is not None]
        whole = batch_row(receipt)
        if held:
            await self._recorder.kept([whole])
            await self._quarantine(receipt, held)
        else:
            self._recorder.keep(whole)
        for row in rows_of(receipt, [each for each in items if each.held is None]):
            self._recorder.keep(row)

    # -- what is kept

    async def _quarantine(self, receipt: Receipt, held: Sequence[Item]) -> None:
        """Whole, before the sender is told. Raises PostgresTrouble."""
        await self._recorder.kept(rows_of(receipt, held))
        place = receipt.place
        for each in held:
            told = {"tenant": str(place.tenant.id), "source": place.source.name, "delivery": each.delivery_id}
            if each.held is OTHER_BYTES:
                logger.error("webhook_payload_mismatch", extra=told)
            else:
                why = None if each.held is None else each.held.code
                logger.warning("webhook_quarantined", extra={**told, "reason": why})


def _named(place: Place) -> str:
    return f"{place.tenant.id}/{place.source.name}"


def _count(counts: WebhookCounts, result: Accepted | Deferred, begun: float) -> None:
    if isinstance(result, Deferred):
        counts.deliveries["undecided"] += 1
        return
    for told in result.deliveries:
        counts.deliveries[_outcome(told)] += 1
    counts.answered(time.perf_counter() - begun)


def _outcome(told: Told) -> str:
    """The label by which it is counted."""
    if told.event_id is None:
        return "ignored" if told.ignored else "quarantined"
    return "duplicate" if told.duplicate else "accepted"

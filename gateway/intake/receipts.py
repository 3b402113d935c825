"""What becomes of a verified request, item by item, and the rows that are kept of it. Pure but for the clock.

Owns: how a settled delivery is told in the table of deliveries. Must not know how one is settled.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from gateway.catalog.model import Deployed, Tenant
from gateway.events import Appended
from gateway.intake import store
from gateway.intake.deliveries import Delivery
from gateway.intake.normalize import Held
from gateway.intake.request import Request
from gateway.intake.store import Kept
from spec.webhooks import Source


class Place(msgspec.Struct, frozen=True):
    """Whose source it is, and the spec that declares it."""

    tenant: Tenant
    deployed: Deployed
    source: Source


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What all deliveries of one request have in common; `id` is that of the row that keeps the request."""

    place: Place
    request: Request
    id: bytes
    received_ms: int
    begun: float
    secret: int
    batch: bool


class Item(msgspec.Struct, frozen=True, gc=False):
    """A delivery that is settled: held, or an event."""

    delivery_id: str
    digest: bytes
    number: int
    held: Held | None
    event_id: bytes | None
    duplicate: bool


def item_of(delivery: Delivery, outcome: Appended | Held) -> Item:
    if isinstance(outcome, Held):
        return Item(delivery.id, delivery.digest, delivery.item, outcome, None, False)
    return Item(delivery.id, delivery.digest, delivery.item, None, outcome.event_ids[0], outcome.replayed)


def rows_of(receipt: Receipt, items: Sequence[Item]) -> list[Kept]:
    """A row an item. The request stands with its only item, or in a row of its own for a batch."""
    if not receipt.batch:
        return [_row(receipt, receipt.id, items[0], receipt.request)]
    return [_row(receipt, uuid7().bytes, each, None) for each in items]


def batch_row(receipt: Receipt) -> Kept:
    body = receipt.request.body
    whole = Item("", sha256(body).digest(), 0, None, None, False)
    return replace(_row(receipt, receipt.id, whole, receipt.request), verdict="batch")


def _row(receipt: Receipt, row_id: bytes, item: Item, request: Request | None) -> Kept:
    verdict: store.Verdict = "accepted"
    if item.held is not None:
        verdict = "quarantined"
    elif item.duplicate:
        verdict = "duplicate"
    return Kept(
        id=row_id,
        tenant=receipt.place.tenant.id.bytes,
        source=receipt.place.source.name,
        delivery_id=item.delivery_id,
        digest=item.digest,
        request_id=receipt.id,
        item=item.number,
        verdict=verdict,
        reason=None if item.held is None else item.held.code,
        error=None if item.held is None else item.held.error,
        event_id=item.event_id,
        received_ms=receipt.received_ms,
        took_ms=int((time.perf_counter() - receipt.begun) * 1000),
        secret=receipt.secret,
        request=request,
        body_in_event=verdict == "accepted" and request is not None and _event_has_body(receipt),
    )


def _event_has_body(receipt: Receipt) -> bool:
    """Whether the data of its one event begin with its body as it came: neither mapped nor made of a form's
    parameters (normalize.py)."""
    return receipt.place.source.data is None and not receipt.batch and not receipt.request.is_form

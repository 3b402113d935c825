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

from gateway.appends import Appended, FeedPlace
from gateway.catalog.model import Deployed, Tenant
from gateway.inbound import store
from gateway.inbound.deliveries import Delivery
from gateway.inbound.normalize import Plan, Quarantine, plan_of
from gateway.inbound.request import Request
from gateway.inbound.store import Kept
from spec.webhooks.sources import Source


class Place(msgspec.Struct, frozen=True):
    """Whose source it is, the spec that declares it, and what that says of all its deliveries."""

    tenant: Tenant
    tenant_id: bytes
    deployed: Deployed
    source: Source
    plan: Plan


def place_of(tenant: Tenant, deployed: Deployed, source: Source) -> Place:
    return Place(tenant, tenant.id.bytes, deployed, source, plan_of(deployed.spec, source))


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
    held: Quarantine | None
    event_id: bytes | None
    duplicate: bool
    last: FeedPlace | None = None


def item_of(delivery: Delivery, outcome: Appended | Quarantine) -> Item:
    if isinstance(outcome, Quarantine):
        return Item(delivery.id, delivery.digest, delivery.item, outcome, None, False)
    event_id = outcome.event_ids[0]
    return Item(delivery.id, delivery.digest, delivery.item, None, event_id, outcome.replayed, outcome.last)


def rows_of(receipt: Receipt, items: Sequence[Item]) -> list[Kept]:
    """A row an item. The request stands with its only item, or in a row of its own for a batch."""
    if not receipt.batch:
        return [row_of(receipt, items[0])]
    return [_row(receipt, uuid7().bytes, each, None) for each in items]


def row_of(receipt: Receipt, item: Item) -> Kept:
    """The row of the only item of its request."""
    return _row(receipt, receipt.id, item, receipt.request)


def batch_row(receipt: Receipt) -> Kept:
    body = receipt.request.body
    whole = Item("", sha256(body).digest(), 0, None, None, False)
    return replace(_row(receipt, receipt.id, whole, receipt.request), verdict="batch")


def _row(receipt: Receipt, row_id: bytes, item: Item, request: Request | None) -> Kept:
    place, held = receipt.place, item.held
    verdict: store.Verdict = "accepted"
    if held is not None:
        verdict = "quarantined"
    elif item.duplicate:
        verdict = "duplicate"
    return Kept(
        row_id,
        place.tenant_id,
        place.source.name,
        item.delivery_id,
        item.digest,
        receipt.id,
        item.number,
        verdict,
        None if held is None else held.code,
        None if held is None else held.error,
        item.event_id,
        receipt.received_ms,
        int((time.perf_counter() - receipt.begun) * 1000),
        receipt.secret,
        request,
        verdict == "accepted" and request is not None and _event_has_body(receipt),
    )


def _event_has_body(receipt: Receipt) -> bool:
    """Whether the data of its one event begin with its body as it came: neither mapped nor made of a form's
    parameters (normalize.py)."""
    return receipt.place.source.data is None and not receipt.batch and not receipt.request.is_form

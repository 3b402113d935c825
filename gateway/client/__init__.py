"""A client of the gateway: appends that are safe to repeat, reads, the feed followed from a kept position.

    async with AsyncClient("http://127.0.0.1:8017", key) as sluice:
        await sluice.append("order", order_id, "was_placed", {"total": 42.5}, actor=Actor("user", user_id))

`AsyncClient` and `Client` do the same, one with asyncio. docs/client.md tells what each call promises.
"""

from gateway.client.asynchronous import AsyncClient
from gateway.client.errors import (
    ConditionFailed,
    Conflict,
    NotCommitted,
    NotUnique,
    OutcomeUnknown,
    Refused,
    SluiceError,
    Unavailable,
)
from gateway.client.model import (
    Actor,
    Appended,
    BulkAppend,
    Child,
    Claim,
    Condition,
    Event,
    FeedPage,
    Hashes,
    Imported,
    Metadata,
    NewEvent,
    Provisioned,
    Receipt,
    ReceiptOfAll,
    Replayed,
    Resolved,
    Row,
    Source,
    StandsFor,
    State,
    Target,
    Tenant,
)
from gateway.client.options import (
    AppendAllOptions,
    AppendOptions,
    CreateOptions,
    FeedOptions,
    ImportOptions,
    RowOptions,
)
from gateway.client.positions import PositionFile, SavedPosition
from gateway.client.retry import Patience
from gateway.client.synchronous import Client

__all__ = (
    "Actor",
    "AppendAllOptions",
    "AppendOptions",
    "Appended",
    "AsyncClient",
    "BulkAppend",
    "Child",
    "Claim",
    "Client",
    "Condition",
    "ConditionFailed",
    "Conflict",
    "CreateOptions",
    "Event",
    "FeedOptions",
    "FeedPage",
    "Hashes",
    "ImportOptions",
    "Imported",
    "Metadata",
    "NewEvent",
    "NotCommitted",
    "NotUnique",
    "OutcomeUnknown",
    "Patience",
    "PositionFile",
    "Provisioned",
    "Receipt",
    "ReceiptOfAll",
    "Refused",
    "Replayed",
    "Resolved",
    "Row",
    "RowOptions",
    "SavedPosition",
    "SluiceError",
    "Source",
    "StandsFor",
    "State",
    "Target",
    "Tenant",
    "Unavailable",
)

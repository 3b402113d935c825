"""GET /_/capabilities: the parts of foreign specifications that this gateway implements."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from gateway.http import response
from spec.filter_items import ITEM_TAGS_MAX, ITEMS_MAX, QUERY_TAGS_MAX
from spec.tags import TAG_BYTES_MAX, TAGS_MAX

CAPABILITIES: Final[dict[str, Any]] = {
    "dcb": {
        "specification": "https://dcb.events/specification",
        "consistent_within": "tenant",
        "read": {
            "paths": ["QUERY /_/feed", "POST /_/feed/query"],
            "query": True,
            "after": True,
            "limit": True,
            "backwards": True,
            "follow": True,
        },
        "append": {"paths": ["POST /_/append"], "fail_if_events_match": True, "after": True},
        "tags": {"from": "data", "hashed": True, "of_an_event_max": TAGS_MAX, "bytes_max": TAG_BYTES_MAX},
        "query_limits": {"items": ITEMS_MAX, "tags_of_an_item": ITEM_TAGS_MAX, "tags": QUERY_TAGS_MAX},
    }
}
"""`dcb`: dynamic consistency boundaries. What is False is not there."""

_BODY: Final = json.dumps({"ok": True, **CAPABILITIES}).encode()


async def capabilities(_request: Request) -> Response:
    return response.json_response(200, _BODY)

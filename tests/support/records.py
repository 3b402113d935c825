"""A webhook source whose deliveries are records: units of files, as a reader of XLIFF sends them."""

from __future__ import annotations

from typing import Any


def source_of_units(secret: str) -> dict[str, Any]:
    """It signs by `x-signature`, and names its deliveries in `x-id`."""
    return {
        "provider": "hmac",
        "header": "x-signature",
        "id_header": "x-id",
        "secrets": [secret],
        "to": {
            "type": "unit",
            "source_id": "$.body.id",
            "scope": "$.body.file",
            "event": "was_seen",
            "if_unchanged": "skip",
        },
        "data": {"text": "$.body.text", "name": "$.body.name?"},
    }

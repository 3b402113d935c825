"""How tenants are spread over partitions. Pure."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

PARTITION_RULE: Final = "sha256-8/1"
"""The first 8 bytes of SHA-256 over the tenant's id, modulo the count. Stored in the instance row, and never
changed."""


def partition_of(tenant: bytes, partitions: int) -> int:
    """The partition a tenant (its UUID's 16 bytes) lives in, by PARTITION_RULE."""
    return int.from_bytes(sha256(tenant).digest()[:8]) % partitions

"""Every Redis key is made here. All of a partition's keys share one hash slot, and all but the meta hash
carry the epoch, so that a sealed epoch's keys are never touched again."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from gateway.events import Stream


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """The keys of one partition in one epoch."""

    prefix: str
    meta: str
    journal: str
    identities: tuple[str, str]
    calls: str
    heads: str
    tags: tuple[str, str]

    def stream(self, stream: Stream) -> str:
        return f"{self.prefix}s:{stream.tenant.hex()}:{stream.aggregate_type}:{stream.key}"

    def own_stream(self, tenant: bytes, tag: str) -> str:
        """Of the aggregate whose events have this tag without a declaration, if there is one."""
        return f"{self.prefix}s:{tenant.hex()}:{tag}"


def partition_keys(instance: UUID, partition: int, epoch: int) -> PartitionKeys:
    base = f"sluice:1:{instance.hex}:{{{partition}}}:"
    prefix = f"{base}{epoch}:"
    return PartitionKeys(
        prefix=prefix,
        meta=f"{base}meta",
        journal=f"{prefix}j",
        identities=(f"{prefix}i0", f"{prefix}i1"),
        calls=f"{prefix}n",
        heads=f"{prefix}h",
        tags=(f"{prefix}t0", f"{prefix}t1"),
    )


def announcement_channel(instance: UUID) -> str:
    """Where gateways tell each other of commits."""
    return f"sluice:1:{instance.hex}:committed"

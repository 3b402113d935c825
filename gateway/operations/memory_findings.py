"""Whether a gateway's limits fit into the memory that there is.

Owns: how much that is, by the kernel and by the control groups that this process is in.
"""

from __future__ import annotations

from pathlib import Path

from gateway.operations.findings import Finding, Verdict

_MIB = 1024 * 1024
_SERVER, _NAME = "gateway", "memory"
_UNLIMITED = "a limit of a gateway's memory is 0, so a load may take all that there is"
_TOO_MUCH = (
    "under a load that reaches all limits at once, the kernel may end the gateway; lower the limits of "
    "docs/sizing.md, or give it more memory"
)


def judge(needed: int | None, has: int | None) -> Finding:
    """`needed`: bytes that a gateway takes at most, None without a limit. `has`: bytes that it may take here,
    None where that is not known."""
    if needed is None:
        return Finding(_SERVER, _NAME, "no limit", Verdict.WARNING, _UNLIMITED)
    found = f"up to {needed // _MIB:,} MiB"
    if has is None:
        return Finding(_SERVER, _NAME, found)
    found += f" of {has // _MIB:,} MiB"
    if needed <= has:
        return Finding(_SERVER, _NAME, found)
    return Finding(_SERVER, _NAME, found, Verdict.WARNING, _TOO_MUCH)


def memory_bytes(root: Path = Path("/")) -> int | None:
    """What this process may take: the machine's memory, or the limit of a control group of it or above it
    (version 1 or 2) where that is less. None where the kernel tells neither."""
    known = [*_of_the_machine(root), *_of_groups(root)]
    return min(known, default=None)


def _of_the_machine(root: Path) -> list[int]:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return [int(value.split()[0]) * 1024]
    return []


def _of_groups(root: Path) -> list[int]:
    """The root group is among them: in a container, it is the container's."""
    found: list[int] = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = Path(path.lstrip("/"))
        for each in (group, *group.parents):
            found += [int(limit) for limit in _lines(base / each / name) if limit != "max"]
    return found


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []

"""The doctor warns where a gateway's limits are more than the memory that it may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.operations.findings import Verdict
from gateway.operations.memory_findings import judge, memory_bytes

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("needed", "has", "verdict", "found"),
    [
        (3 * MIB, 4 * MIB, Verdict.OK, "up to 3 MiB of 4 MiB"),
        (4 * MIB, 4 * MIB, Verdict.OK, "up to 4 MiB of 4 MiB"),
        (5000 * MIB, 4096 * MIB, Verdict.WARNING, "up to 5,000 MiB of 4,096 MiB"),
        (None, 4 * MIB, Verdict.WARNING, "no limit"),
        (3 * MIB, None, Verdict.OK, "up to 3 MiB"),
    ],
)
def test_limits_that_do_not_fit_into_memory_are_a_warning(
    needed: int | None, has: int | None, verdict: Verdict, found: str
) -> None:
    finding = judge(needed, has)
    assert (finding.verdict, finding.found) == (verdict, found)
    assert bool(finding.means) == (verdict is Verdict.WARNING)


MACHINE = {"proc/meminfo": "MemTotal:        8192 kB\nMemFree:            1 kB\n"}
MACHINES = {
    "a machine without groups": (MACHINE, 8 * MIB),
    "a container of version 2": (
        MACHINE | {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4194304\n"},
        4 * MIB,
    ),
    "a service of version 2, whose slice has the limit": (
        MACHINE
        | {
            "proc/self/cgroup": "0::/a.slice/b.service\n",
            "sys/fs/cgroup/a.slice/memory.max": "2097152\n",
            "sys/fs/cgroup/a.slice/b.service/memory.max": "max\n",
        },
        2 * MIB,
    ),
    "version 1": (
        MACHINE
        | {
            "proc/self/cgroup": "3:cpu:/b\n2:memory:/a\n1:name=systemd:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1048576\n",
        },
        1 * MIB,
    ),
    "no Linux": ({}, None),
}


@pytest.mark.parametrize(("files", "bytes_max"), MACHINES.values(), ids=MACHINES.keys())
def test_memory_is_what_the_machine_has_and_the_groups_allow(
    tmp_path: Path, files: dict[str, str], bytes_max: int | None
) -> None:
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert memory_bytes(tmp_path) == bytes_max

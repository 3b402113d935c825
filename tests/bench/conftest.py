from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers import quick_parent


@pytest.fixture(autouse=True, scope="session")
def in_memory() -> Iterator[None]:
    """Benchmarks that are only tried out measure no disk, and need no log that was filled before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_FOLDER", str(quick_parent()))
        patch.setenv("BENCH_LOG_MB", "1")
        yield

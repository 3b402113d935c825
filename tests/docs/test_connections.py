"""The pages count the connections that a gateway's pools may open."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import app, outbound

DOCS = Path(__file__).parents[2] / "docs"
POOLS = (
    *(app._POOL_MAX, app._CATALOG_POOL_MAX, app._ADMIN_POOL_MAX, app._KEY_POOL_MAX, app._OUTBOX_POOL_MAX),
    *(outbound._POOL_MAX, outbound._ROWS_POOL_MAX, outbound._FOLLOW_POOL_MAX),
)


@pytest.mark.parametrize("page", ["operations.md", "sizing.md"])
def test_a_page_says_how_many_connections_a_gateway_holds(page: str) -> None:
    assert app._CONSOLE_POOL_MAX == 1
    assert f"`SLUICE_PARTITIONS` + {sum(POOLS)}" in (DOCS / page).read_text()

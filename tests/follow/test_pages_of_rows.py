"""A page of rows reads no more bytes than it may have, and one row more."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.follow import reading
from tests.follow.conftest import Shop
from tests.follow.test_live import following
from tests.support.calls import new_id

TEXT = "x" * 1_000
MOST = 2_500


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of data that came with each row, in pages of few."""
    monkeypatch.setattr(reading, "PAGE_BYTES", MOST)
    sizes: list[int] = []
    row_of = reading.row_of

    def counted(row: Any) -> Any:
        sizes.append(len(row["data"] or b""))
        return row_of(row)

    monkeypatch.setattr(reading, "row_of", counted)
    return sizes


@pytest.mark.parametrize("sort", ["", "-total", "total,-status"])
async def test_rows_beyond_a_page_are_not_read(shop: Shop, read: list[int], sort: str) -> None:
    keys = [new_id() for _ in range(7)]
    for n, key in enumerate(keys):
        await shop.append(key, "was_placed", {"total": n, "status": "open", "text": TEXT})
    expected = {"": sorted(keys), "-total": keys[::-1], "total,-status": keys}[sort]
    found, cursor = [], None
    while True:
        more: dict[str, Any] = {"limit": 100, **({"sort": sort} if sort else {})}
        if cursor is not None:
            more["cursor"] = cursor
        read.clear()
        page = await shop.get("/order", **more)
        assert 0 < sum(read) <= MOST + 2 * len(TEXT)
        found += [each["key"] for each in page["items"]]
        assert all(each["data"]["text"] == TEXT for each in page["items"])
        cursor = page["next"]
        if cursor is None:
            break
    assert found == expected


async def test_changes_that_are_sent_live_are_read_some_bytes_at_a_time(
    shop: Shop, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    changed = reading.Reading.changed

    async def counted(*args: Any) -> Any:
        read.clear()
        found = await changed(*args)
        looks.append(sum(read))
        return found

    monkeypatch.setattr(reading.Reading, "changed", counted)
    first, keys = new_id(), [new_id() for _ in range(7)]
    await shop.append(first, "was_placed", {"text": TEXT})
    await shop.get("/order")
    async with following(shop.client, "/order") as stream:
        place = (await stream.next()).id
    for key in keys:
        await shop.append(key, "was_placed", {"text": TEXT})
    await shop.append(first, "was_placed", {"text": "short"})
    await shop.get("/order")
    looks.clear()
    async with following(shop.client, "/order", place) as stream:
        told = [await stream.next() for _ in range(len(keys) + 1)]
        assert [each.data["key"] for each in told] == [*keys, first]
        assert told[-1].id > told[0].id
    assert len(looks) > 2
    assert max(looks) <= MOST + 2 * len(TEXT)

"""What the doctor says of deployed specs."""

from __future__ import annotations

import asyncpg
import pytest

from gateway.catalog import tenants
from gateway.operations import doctor
from gateway.operations.doctor import diagnose
from gateway.operations.findings import Finding, Verdict
from gateway.operations.place import Place
from gateway.operations.spec_findings import OUTDATED, UNREADABLE
from tests.catalog.documents import ORDERS, accepted, with_an_id


async def found(place: Place) -> Finding:
    (finding,) = [each for each in (await diagnose(place, 600.0, 1)).findings if each.name == "specs"]
    return finding


async def deploy(pool: asyncpg.Pool, name: str, document: bytes) -> None:
    tenant = await tenants.create(pool, name)
    await accepted(pool, tenant.id, ORDERS)
    await pool.execute("UPDATE spec_revision SET document = $2 WHERE tenant = $1", tenant.id, document)


async def test_specs_that_this_release_would_refuse_or_can_not_read_are_named(place: Place) -> None:
    assert (await found(place)).verdict is Verdict.OK
    await deploy(place.pool, "old", with_an_id("not one"))
    outdated = await found(place)
    assert (outdated.verdict, outdated.means) == (Verdict.WARNING, OUTDATED)
    assert "1 have faults that earlier releases accepted, like that of old, revision 1" in outdated.found
    assert '/implications/0/emit/id: "not one" is not an identifier' in outdated.found
    await deploy(place.pool, "new", b"{}")
    unreadable = await found(place)
    assert (unreadable.verdict, unreadable.means) == (Verdict.WARNING, UNREADABLE)
    assert "1 can't be read, like that of new, revision 1: /: A spec needs" in unreadable.found


async def test_a_look_at_many_specs_ends_in_time_and_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(doctor.SPECS_AT_ONCE + 1):
        await deploy(place.pool, f"acme-{n}", ORDERS)
    assert (await found(place)).found == f"{doctor.SPECS_AT_ONCE + 1} are deployed"
    monkeypatch.setattr(doctor, "SPECS_S", -1.0)
    assert (await found(place)).found == "of more, 0 were looked at"

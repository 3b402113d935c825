"""What a database needs before the first gateway: tables, tenant `main`, an admin key, a spec."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files

from gateway.catalog.bootstrap import bootstrap
from gateway.catalog.migrate import migrate
from gateway.catalog.model import CatalogError
from gateway.catalog.secrets import Secrets
from gateway.dev.failure import CannotStart
from gateway.dev.service_process import Say
from gateway.postgres.connection_errors import UNANSWERED
from spec.subscriptions import PermissiveEnviron

TENANT = "main"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to prepare. `spec` is the document of --spec; None: the bundled example, if there is none yet."""

    postgres_url: str
    partitions: int
    spec: bytes | None
    key: str | None
    """The one that an earlier start wrote; it is kept while it is valid."""
    allow_private_targets: bool = False


async def prepare(wanted: Wanted, say: Say) -> str:
    """Do it, as far as it isn't done. Returns the key. Raises CannotStart with all faults and conflicts."""
    try:
        for name in await migrate(wanted.postgres_url, wanted.partitions):
            say(f"the database is prepared: {name}")
        done = await bootstrap(
            wanted.postgres_url,
            tenant=TENANT,
            spec_document=bundled_spec() if wanted.spec is None else wanted.spec,
            replace_spec=wanted.spec is not None,
            have_key=wanted.key,
            environ=PermissiveEnviron(Secrets(os.environ).of(TENANT), wanted.allow_private_targets),
        )
    except CatalogError as fault:
        raise CannotStart(str(fault)) from fault
    except UNANSWERED as fault:
        raise CannotStart(f"the database can't be prepared: {fault}") from fault
    if done.conflicts:
        listed = "\n".join(f"  {conflict}" for conflict in done.conflicts)
        raise CannotStart(f"the spec would refuse or reinterpret what is stored:\n{listed}")
    return done.key


def bundled_spec() -> bytes:
    """The example that a tenant without a spec gets."""
    return (files("spec") / "examples" / "orders.json").read_bytes()

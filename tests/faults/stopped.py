"""A gateway stands still for longer than every lease, while a key is revoked and another spec is deployed.

As the faults of injections.py. What reaches it meanwhile is read once it continues: later than the seconds
within which every gateway knows of both. So nothing of it may be stored by the key or the spec that it
remembers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from tests.faults.client import record_append, record_delivery
from tests.faults.cluster import Tenant
from tests.faults.gateway_at import GatewayAt
from tests.faults.history import Identity, Operation, Try, now
from tests.faults.injections import INJECTIONS, Injection, Scene
from tests.faults.spec import EVENT_TYPE, ORDER, TRIAL, document, trial_event, trial_secret
from tests.faults.webhooks import signed
from tests.faults.wire import Answer, Caller

KNOWN_S = 5.0
"""Within so long every gateway follows a deployment and the end of a key (http-api.md)."""
LEASES_S = 8.0
"""Longer than a gateway counts as alive without a sign, and than any lease of the rig's settings."""
EACH = 4
"""Requests of a kind: some while it stands still, as many right after."""
PATIENCE_S = 60.0
OPERATOR_S = 30.0
ACTOR = {"type": "user", "id": "a0000000-0000-4000-a000-000000000001"}


@dataclass(frozen=True, slots=True)
class _Request:
    """An operation, and the bytes by which it is sent."""

    wanted: Operation
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    is_delivery: bool = False


class _Trial:
    """What one key and one deployment allow, before they end and afterwards."""

    def __init__(self, scene: Scene, number: int, tenant: Tenant, key: str) -> None:
        self._scene = scene
        self._number = number
        self._tenant = tenant
        self._key = key
        self.deployment = scene.cluster.deployments.get(number, 0)
        self._made = 0

    def requests(self, outdated: str = "") -> list[_Request]:
        """One for each thing that is about to end. `outdated`: why it has to be refused."""
        return [
            self._append("by-key", outdated, ORDER, EVENT_TYPE, self._key),
            self._append("by-spec", outdated, TRIAL, trial_event(self.deployment), self._tenant.key),
            self._delivery(outdated),
        ]

    def _operation(self, kind: str, outdated: str, of: str) -> Operation:
        self._made += 1
        rng = self._scene.rng
        name = f"stopped-{rng.getrandbits(48):x}.{self._made}"
        key = str(UUID(int=rng.getrandbits(128), version=4))
        body = {"op": f"{name}#0", "key": key}
        payload = json.dumps(body, separators=(",", ":")).encode()
        made = Operation(name, kind, self._number, of, key, (payload,), Identity.KEY, name, outdated=outdated)
        self._scene.history.operations.append(made)
        return made

    def _append(self, kind: str, outdated: str, of: str, event: str, key: str) -> _Request:
        made = self._operation(kind, outdated, of)
        headers = [("Authorization", f"Bearer {key}"), ("Idempotency-Key", made.id)]
        body = b'{"data":%b,"metadata":{"actor":%b}}' % (made.payloads[0], json.dumps(ACTOR).encode())
        return _Request(made, f"/{of}/{made.key}/{event}", headers, body)

    def _delivery(self, outdated: str) -> _Request:
        made = self._operation("by-secret", outdated, ORDER)
        headers = signed(made.payloads[0], made.id, trial_secret(self.deployment))
        target = f"/_/webhooks/{self._tenant.name}/{TRIAL}"
        return _Request(made, target, headers, made.payloads[0], is_delivery=True)

    async def send(self, request: _Request, gateway: GatewayAt) -> None:
        one, caller = Try(gateway.number, now()), Caller()
        request.wanted.tries.append(one)
        try:
            answer = await caller.call(
                gateway.port, "POST", request.target, request.headers, request.body, timeout_s=PATIENCE_S
            )
        finally:
            caller.close()
        if not isinstance(answer, Answer):
            one.why, one.reached = answer.why, answer.reached
            return
        one.answered, one.status = now(), answer.status
        told = json.loads(answer.body)
        one.code = told.get("code", "")
        (record_delivery if request.is_delivery else record_append)(one, told)

    async def send_all(self, requests: Sequence[_Request], gateway: GatewayAt) -> None:
        await asyncio.gather(*(self.send(each, gateway) for each in requests))


@asynccontextmanager
async def stopped_past_leases(scene: Scene) -> AsyncIterator[None]:
    cluster, rng = scene.cluster, scene.rng
    gateway = scene.gateway()
    operator = rng.choice([each for each in cluster.gateways if each is not gateway])
    number = rng.randrange(len(cluster.tenants))
    tenant = cluster.tenants[number]
    key, handle = await _new_key(operator, tenant)
    trial = _Trial(scene, number, tenant, key)
    await trial.send_all(trial.requests(), gateway)  # it knows the key, the spec and the secret by now
    scene.say(f"SIGSTOP gateway {gateway.number}; a key of {tenant.name} revoked, another spec deployed")
    gateway.server.pause()
    begun = now()
    late = [each for _ in range(EACH) for each in trial.requests("its key or its spec had ended")]
    sending = asyncio.gather(*(trial.send(each, gateway) for each in late))
    try:
        await _revoke(operator, tenant, handle)
        cluster.deployments[number] = trial.deployment + 1
        await _deploy(operator, tenant, trial.deployment + 1)
        known = now() + KNOWN_S
        await asyncio.sleep(max(known, begun + LEASES_S) - now())
        yield
    finally:
        gateway.server.resume()
        again = [each for _ in range(EACH) for each in trial.requests("its key or its spec had ended")]
        await asyncio.gather(sending, trial.send_all(again, gateway))
        answers = sorted({one.tries[0].status for one in (each.wanted for each in (*late, *again))})
        scene.say(f"its answers: {answers}")


async def _new_key(gateway: GatewayAt, tenant: Tenant) -> tuple[str, str]:
    told = json.loads(await _admin(gateway, tenant, "POST", "/_/keys", b'{"scope":"write"}'))
    return told["key"], told["handle"]


async def _revoke(gateway: GatewayAt, tenant: Tenant, handle: str) -> None:
    await _admin(gateway, tenant, "DELETE", f"/_/keys/{handle}")


async def _deploy(gateway: GatewayAt, tenant: Tenant, deployment: int) -> None:
    """By force: events of the deployment before are stored."""
    await _admin(gateway, tenant, "PUT", "/_/spec?force=true", document(deployment))


async def _admin(gateway: GatewayAt, tenant: Tenant, method: str, target: str, body: bytes = b"") -> bytes:
    """An operator's request, until it is answered."""
    caller, deadline = Caller(), now() + OPERATOR_S
    headers = (("Authorization", f"Bearer {tenant.admin}"),)
    try:
        while True:
            told = await caller.call(gateway.port, method, target, headers, body, timeout_s=OPERATOR_S)
            if isinstance(told, Answer) and told.status < 300:
                return told.body
            assert now() < deadline, f"{method} {target}: {told}"
            await asyncio.sleep(0.2)
    finally:
        caller.close()


INJECTIONS["stopped-past-leases"] = Injection(
    "stopped-past-leases",
    frozenset(("gateways", "postgres", "network")),
    stopped_past_leases,
    hold_s=(0.05, 3.0),
)

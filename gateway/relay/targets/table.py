"""Which target each kind of subscription leads to: one table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import assert_never

from gateway.relay.targets.contract import Target
from gateway.relay.targets.redis_stream import RedisStreamTarget
from gateway.relay.targets.webhook import WebhookTarget
from spec.subscriptions import Pull, RedisStream, Subscription, Webhook


def target_of(
    declared: Subscription,
    environ: Mapping[str, str],
    *,
    allow_private: bool,
    clock: Callable[[], float] = time.time,
) -> Target:
    """`environ` has the secrets that it names; `clock` gives Unix seconds."""
    match declared.target:
        case Webhook() as webhook:
            return WebhookTarget(webhook, environ, allow_private=allow_private, clock=clock)
        case RedisStream() as stream:
            return RedisStreamTarget(stream, allow_private=allow_private)
        case Pull():
            raise AssertionError("a pull subscription is not sent")
        case impossible:
            assert_never(impossible)

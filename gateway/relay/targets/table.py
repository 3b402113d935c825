"""How events are sent to each kind of target: one table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.relay.targets.contract import Target
from gateway.relay.targets.redis_stream import RedisStreamTarget
from gateway.relay.targets.webhook import WebhookTarget
from spec.subscriptions import Subscription
from spec.tables import complete
from spec.targets.redis_stream import RedisStream
from spec.targets.table import SENT
from spec.targets.webhook import Webhook

Make = Callable[[Any, Mapping[str, str], bool, Callable[[], float]], Target]
"""Of the declared target, the environment, whether private addresses are allowed, and the clock."""

SENDERS: Final[Mapping[type, Make]] = complete(
    SENT.values(),
    {
        Webhook: lambda declared, environ, private, clock: WebhookTarget(
            declared, environ, allow_private=private, clock=clock
        ),
        RedisStream: lambda declared, _environ, private, _clock: RedisStreamTarget(
            declared, allow_private=private
        ),
    },
)


def target_of(
    declared: Subscription,
    environ: Mapping[str, str],
    *,
    allow_private: bool,
    clock: Callable[[], float] = time.time,
) -> Target:
    """`environ` has the secrets that it names, `clock` gives Unix seconds. KeyError for `pull`."""
    return SENDERS[type(declared.target)](declared.target, environ, allow_private, clock)

"""What a request for the feed says beside types, tags and positions: whose events, and in which order."""

from __future__ import annotations

from uuid import UUID

from gateway.admit.append import unknown_actor
from gateway.errors import Refusal
from gateway.http.parameters import Parameters, uuid_of
from gateway.http.request import Refused
from spec.errors import shown
from spec.identifiers import canonicalize, is_name
from spec.model import Spec

_SYSTEM = "system_"
"""How the gateway's own actor types begin; no spec declares one."""


def correlation_of(query: Parameters) -> bytes | None:
    """Raises Refused (422)."""
    text = query.text("correlation_id")
    found: UUID | None = None if text is None else uuid_of(text, "correlation_id")
    return None if found is None else found.bytes


def actor_of(query: Parameters, spec: Spec | None) -> tuple[str, str] | None:
    """`actor=type:id`, the id in its canonical spelling; held to what the spec declares, if there is one.
    Raises Refused (422)."""
    text = query.text("actor")
    if text is None:
        return None
    kind, colon, key = text.partition(":")
    if not colon or not is_name(kind):
        raise Refused(Refusal("invalid_field", "An actor is `type:id`, such as `user:global`.", "actor"))
    if spec is not None and kind not in spec.agent_types and not kind.startswith(_SYSTEM):
        raise Refused(unknown_actor(kind, spec, "actor"))
    canonical = canonicalize(key, frozenset() if spec is None else spec.singletons)
    if canonical is None and spec is None and is_name(key):  # a singleton that was withdrawn
        canonical = key
    if canonical is None:
        why = f"{shown(key)} is not an id that an actor can have."
        raise Refused(Refusal("invalid_identifier", why, "actor"))
    return kind, canonical


def is_newest_first(query: Parameters, *, live: bool) -> bool:
    """Raises Refused (422) where events that are yet to come are asked for in that order."""
    if query.choice("order", ("asc", "desc"), "asc") == "asc":
        return False
    if live or query.given("wait"):
        why = "`order=desc` leads to older events: it neither follows nor waits for new ones."
        raise Refused(Refusal("invalid_field", why, "order"))
    return True

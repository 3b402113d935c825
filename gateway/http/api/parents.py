"""`"parent"` beside the events of a new aggregate: which aggregate that is, and the child's name below
its own.

Owns how an invalid parent is refused. It is looked at last but for the rules of the child's events: a number
is given only to a child that is about to be.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec

from gateway.admit.address import bad_identifier
from gateway.aliases.children import Child, Children, child_of
from gateway.aliases.writer import NotWritten
from gateway.appends import Append
from gateway.catalog.model import Principal
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.http.api.aliases import Aliases
from gateway.http.authentication import narrowed
from gateway.http.outcomes import Answer, Outcomes, refused
from gateway.http.request import Refused
from gateway.names.aliases import SIGIL, Alias, Kind
from gateway.names.hash_ids import CHILD_DEPTH_MAX
from gateway.outcomes import RuleViolated
from gateway.postgres.errors import PostgresTrouble
from spec.errors import shown
from spec.identifiers import canonicalize
from spec.model import Spec


class _Body(msgspec.Struct):
    parent: str | None = None


_decode = msgspec.json.Decoder(_Body).decode


def parent_of(body: bytes) -> str | None:
    """What the body of an admitted minting request names as its parent."""
    return _decode(body).parent


class Parents:
    def __init__(self, aliases: Aliases, children: Children, outcomes: Outcomes) -> None:
        self._aliases = aliases
        self._children = children
        self._outcomes = outcomes

    async def child(
        self,
        principal: Principal,
        spec: Spec,
        parent: str,
        append: Append,
        mint: Callable[[], str],
        violated: Callable[[], Awaitable[RuleViolated | None]],
    ) -> Child | Answer:
        """The child that `append` is about to create, under the key and the name that are its own; an answer
        where there can be none. `mint` makes another key where the append's is taken; `violated` judges the
        rules of its events. Raises what `violated` does."""
        try:
            meant = await self._named(principal, spec, parent, append.stream)
            if isinstance(meant, Refusal):
                return refused(meant)
            child = await violated() or await self._children.name(*meant, append.stream, append.retry, mint)
        except (PostgresTrouble, NotWritten):
            why = "The event of this request will never appear: the child's name could not be assigned."
            return refused(Refusal("not_committed", why), 1)
        if isinstance(child, Child):
            return child
        return await self._outcomes.of_append(None, child, minimal=True, batch=True)

    async def _named(
        self, principal: Principal, spec: Spec, text: str, child: Stream
    ) -> tuple[Stream, Alias] | Refusal:
        """The parent, and its name to which a number is added. Raises PostgresTrouble."""
        tenant = principal.tenant.id.bytes
        if text.startswith(SIGIL):
            try:
                found = await self._aliases.meant(principal, text)
            except Refused as fault:
                return replace(fault.refusal, path="parent")
            stream = Stream(tenant, found.aggregate_type, found.key)
            alias = found.alias if found.alias.kind is Kind.HASH else await self._alias(spec, stream)
        else:
            key = canonicalize(text, spec.singletons)
            if key is None:
                return bad_identifier(text, spec, "parent")
            stream, alias = await self._by_key(spec, tenant, key, child.aggregate_type)
        if principal.only is not None and not principal.only.reads(stream.aggregate_type, stream.key):
            return narrowed(principal)
        if alias is None:
            why = f"{shown(text)} has no hash id, so it can't have children."
            return Refusal("invalid_field", why, "parent")
        if child_of(alias, 1) is None:
            why = f"{alias.text} is {CHILD_DEPTH_MAX} levels deep and can't have children; name its parent."
            return Refusal("depth_exceeded", why, "parent")
        return stream, alias

    async def _by_key(
        self, spec: Spec, tenant: bytes, key: str, aggregate_type: str
    ) -> tuple[Stream, Alias | None]:
        """A key does not say its type: the child's own comes first, then those that get hash ids, and last
        whichever has one, as a child or by a migration."""
        types = () if spec.hash_ids is None else spec.hash_ids.types
        streams = [Stream(tenant, each, key) for each in dict.fromkeys((aggregate_type, *types))]
        for stream in streams:
            alias = await self._alias(spec, stream)
            if alias is not None:
                return stream, alias
        found = await self._aliases.hash_id_of_key(tenant, key, spec.aggregate_types)
        if found is not None:
            return Stream(tenant, found.aggregate_type, key), found.alias
        return streams[0], None

    async def _alias(self, spec: Spec, stream: Stream) -> Alias | None:
        """The oldest hash id of an aggregate that is written, which gets one now if it is about to."""
        for each in await self._aliases.names(spec, stream):
            if each.alias.kind is Kind.HASH:
                return each.alias
        return None

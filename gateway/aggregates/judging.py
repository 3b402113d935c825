"""Which appends have rules or implied events, and an append judged on a state.

Must not know: what an append waits for, and what follows from its judgement.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from gateway.aggregates.folder import Handlers, Rules
from gateway.appends import Append
from gateway.catalog.model import Deployed, tenant_of
from gateway.events import Recorded, Stream
from gateway.outcomes import RuleViolated
from gateway.state import AT_ONCE_LOOKS, EMPTY, Folded, TakesLong, is_light, rules
from gateway.state.rules import Violation, judge
from spec.model import Spec

DeployedOf = Callable[[UUID], Deployed | None]
"""The spec by which a tenant's requests are checked, by the tenant's id."""


def at_once(
    tip: Folded, events: tuple[Recorded, ...], deployed: Deployed, bytes_max: int
) -> Folded | Violation | None:
    """None: it takes too long to be judged where everything else waits."""
    rules_of, handler_of = _declared(events, deployed)
    if not (rules.is_light(tip, events, rules_of) and is_light(tip, events, handler_of)):
        return None
    try:
        return judge(tip, handler_of.presented(events), rules_of, handler_of, bytes_max, AT_ONCE_LOOKS)
    except TakesLong:
        return None


def judgement(
    tip: Folded, events: tuple[Recorded, ...], deployed: Deployed, bytes_max: int
) -> Folded | Violation:
    """The state after the events, or the first rule that does not hold."""
    rules_of, handler_of = _declared(events, deployed)
    return judge(tip, handler_of.presented(events), rules_of, handler_of, bytes_max)


def _declared(events: tuple[Recorded, ...], deployed: Deployed) -> tuple[Rules, Handlers]:
    aggregate_type = events[0].stream.aggregate_type
    return Rules(deployed, aggregate_type), Handlers(deployed, aggregate_type)


def _recorded(append: Append) -> tuple[Recorded, ...]:
    return tuple([Recorded(append.stream, n, each) for n, each in enumerate(append.events, 1)])


def is_first(append: Append, deployed: Deployed, bytes_max: int) -> bool:
    """Whether its rules take it as the first of its aggregate, and it asks for that: no state has to be read,
    and it conflicts where it is not."""
    if append.expected != 0:
        return False
    return isinstance(at_once(EMPTY, _recorded(append), deployed, bytes_max), Folded)


def refused_as_first(append: Append, deployed: Deployed, bytes_max: int) -> RuleViolated | None:
    """By the rules of its events, as the first append of its aggregate."""
    verdict = judgement(EMPTY, _recorded(append), deployed, bytes_max)
    if isinstance(verdict, Folded):
        return None
    return RuleViolated(verdict.event, verdict.rule, verdict.error, 0)


def spec_of_tenant(deployed_of: DeployedOf, tenant: bytes) -> Deployed | None:
    """The tenant's spec, where any of its events has rules or implies others."""
    deployed = deployed_of(tenant_of(tenant))
    return deployed if deployed is not None and judges(deployed.reading) else None


def judges(spec: Spec) -> bool:
    """Whether any of its events has rules or implies others."""
    return spec.ruled or spec.implies


def is_current(append: Append, deployed: Deployed) -> bool:
    """Whether this spec admits its events as they are: an earlier one may have made them, and another now
    claim values, or give tags, that they lack."""
    if append.events[0].spec_rev == deployed.revision and not deployed.removing:  # as nearly always
        return True
    types = deployed.spec.aggregate_types
    for n, event in enumerate(append.events):
        of = (append.stream if append.spread is None else append.spread.stream_of(n)).aggregate_type
        if of.startswith("_"):  # the gateway's own
            continue
        declared = types.get(of)
        if declared is None or event.type not in declared.events:
            return False
        since = deployed.since.get((of, event.type), deployed.revision)
        if not since <= event.spec_rev <= deployed.revision:
            return False
    return True


def implies(append: Append, deployed: Deployed) -> bool:
    """Whether it may write other events too."""
    declared = deployed.reading.aggregate_types.get(append.stream.aggregate_type)
    if declared is None or not declared.implies:
        return False
    for each in append.events:
        found = declared.events.get(each.type)
        if found is not None and found.implies:
            return True
    return False


def spec_of_stream(deployed_of: DeployedOf, stream: Stream) -> Deployed | None:
    """The spec of the stream's tenant where its type has events with rules."""
    deployed = spec_of_tenant(deployed_of, stream.tenant)
    return deployed if deployed is not None and is_ruled(stream, deployed) else None


def is_ruled(stream: Stream, deployed: Deployed) -> bool:
    """Whether events of its type have rules."""
    declared = deployed.reading.aggregate_types.get(stream.aggregate_type)
    return declared is not None and declared.ruled

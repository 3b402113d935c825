"""A build's output, by its definition."""

from __future__ import annotations

from functools import partial

import asyncpg

from gateway.follow.events import Events
from gateway.follow.joins import JoinOutput, dependents
from gateway.follow.lists import ListOutput
from gateway.follow.model import Build
from gateway.follow.output import Output
from gateway.follow.projections import ProjectionOutput
from gateway.follow.states import AggregateStates
from spec.model import Spec


def output_of(build: Build, spec: Spec, events: Events, pool: asyncpg.Pool) -> Output | None:
    """None where the spec declares none by its name: it is of another release's making."""
    match build.kind:
        case "list" if build.name in spec.aggregate_types:
            return ListOutput(spec, build.name)
        case "projection" if build.name in spec.projections:
            states = AggregateStates(spec, events, build.p)
            if spec.projections[build.name].join is not None:
                return JoinOutput(spec, build.name, build.tenant, states, partial(dependents, pool, build.id))
            return ProjectionOutput(spec, build.name, states)
    return None

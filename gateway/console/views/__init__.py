"""What each page shows and each act does: the API's answers, put in order for people.

An endpoint that this release does not have, or that the key may not ask, leaves its part of a page empty.
"""

from __future__ import annotations

from gateway.console.pages import View
from gateway.console.views import aggregates, declared, events, find, keys, out, overview, reactions, webhooks


def views() -> dict[tuple[str, str], View]:
    return {
        ("GET", "/overview"): overview.overview,
        ("GET", "/find"): find.find,
        ("GET", "/aggregates"): aggregates.aggregates,
        ("GET", "/aggregates/{type}"): aggregates.of_type,
        ("GET", "/aggregates/{type}/{id}"): aggregates.aggregate,
        ("GET", "/aggregates/{type}/{id}/append"): aggregates.form,
        ("POST", "/aggregates/{type}/{id}/append"): aggregates.append,
        ("GET", "/events/{id}"): events.event,
        ("GET", "/feed"): events.feed,
        ("GET", "/spec"): declared.spec,
        ("POST", "/spec"): declared.deploy,
        ("GET", "/projections"): declared.projections,
        ("GET", "/projections/{name}"): declared.projection,
        ("GET", "/webhooks"): webhooks.webhooks,
        ("GET", "/webhooks/{id}"): webhooks.webhook,
        ("POST", "/webhooks/discard"): webhooks.discard,
        ("POST", "/webhooks/replay"): webhooks.replay,
        ("GET", "/schedules"): reactions.schedules,
        ("POST", "/schedules/{id}/{act}"): reactions.act_on_schedule,
        ("GET", "/sagas"): reactions.sagas,
        ("POST", "/sagas/{id}/{act}"): reactions.act_on_saga,
        ("GET", "/keys"): keys.keys,
        ("POST", "/keys"): keys.make_key,
        ("POST", "/keys/{handle}/rotate"): keys.rotate_key,
        ("POST", "/keys/{handle}/revoke"): keys.revoke_key,
        ("GET", "/out"): out.out,
        ("GET", "/out/{name}"): out.subscription,
        ("GET", "/out/{name}/deliveries/{event_id}"): out.delivery,
        ("POST", "/out/{name}/{act}"): out.act_on_subscription,
    }

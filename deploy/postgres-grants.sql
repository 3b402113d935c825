-- What a gateway may do, and no more. As sluice_owner, after every `sluice migrate`; running it again is harmless.
--     psql -f deploy/postgres-grants.sql
--
-- It can't delete or change an event, but those of a tenant that is being deleted, and it can't make a table.
-- Tenants, and keys of at most the asker's scope, are made over HTTP.

\set ON_ERROR_STOP on
BEGIN;
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM sluice_gateway;

-- Whose database this is, and of which release.
GRANT SELECT ON instance, schema_version TO sluice_gateway;

-- The order of each partition: moved by every commit, sealed after trouble.
GRANT SELECT, UPDATE (epoch, seq, chain, mode, owner, alarm) ON partition_log TO sluice_gateway;
GRANT EXECUTE ON FUNCTION swap_in_turn TO sluice_gateway;
-- What the chains are at some positions, a short cut when Redis is verified.
GRANT SELECT, INSERT ON partition_mark TO sluice_gateway;

-- What each tenant stores, counted behind the commits.
GRANT SELECT, INSERT, UPDATE ON tenant_storage, storage_mark TO sluice_gateway;

-- Which gateways can't reach Redis: each says so itself.
GRANT SELECT, INSERT, UPDATE, DELETE ON redis_unreachable TO sluice_gateway;

-- States of long streams, a cache.
GRANT SELECT, INSERT, UPDATE, DELETE ON kept_state TO sluice_gateway;

-- What only grows.
GRANT SELECT, INSERT ON outbox, append_identity, event_tag TO sluice_gateway;
-- Which aggregate holds which unique value.
GRANT SELECT, INSERT, DELETE ON unique_claim TO sluice_gateway;
GRANT INSERT, SELECT (p) ON quarantined_append TO sluice_gateway;
-- What it saw committed and Postgres has lost. Only `sluice rewind`, as sluice_owner, gives such a thing up.
GRANT SELECT, INSERT ON partition_trail TO sluice_gateway;

-- Where the first relay found this database, and the standby that took over. Only `sluice adopt`, as sluice_owner, says
-- that a copy may deliver.
GRANT SELECT, INSERT (system_id, database_oid, timeline), UPDATE (timeline) ON instance_home TO sluice_gateway;

-- What goes out: subscriptions, cursors, what waits, what was tried.
GRANT SELECT, INSERT, UPDATE, DELETE ON subscription, straggler, delivery_attempt, subscribed_spec TO sluice_gateway;

-- Lists and projections: builds, their places, their rows.
GRANT SELECT, INSERT, UPDATE, DELETE ON followed, follower, follower_row, follower_source TO sluice_gateway;

-- Tenants are provisioned over HTTP with a key of scope operator; none is renamed. A deletion is asked for, and then
-- carried out by functions that empty nothing else. When a key was last used is noted.
GRANT SELECT, INSERT, UPDATE (suspended_at, spec_bytes) ON tenant TO sluice_gateway;
GRANT SELECT, INSERT ON tenant_deletion TO sluice_gateway;
GRANT EXECUTE ON FUNCTION delete_tenant_step, delete_tags_step TO sluice_gateway;
GRANT SELECT, INSERT, UPDATE (last_used_at, revoked_at, changed) ON api_key TO sluice_gateway;
GRANT EXECUTE ON FUNCTION forget_keys TO sluice_gateway;

-- For one stream each, once.
GRANT SELECT, INSERT, DELETE, UPDATE (expires_at) ON ticket TO sluice_gateway;

-- What foreign systems call a tenant's aggregates: grows; only sluice_owner renames a scope.
GRANT SELECT, INSERT ON source_scope TO sluice_gateway;
GRANT SELECT, INSERT, UPDATE (aggregate_type) ON source_key TO sluice_gateway;
GRANT SELECT ON source_map TO sluice_gateway;

-- What was imported, and as which aggregate.
GRANT SELECT, INSERT, UPDATE (ref, content, times, appended, imports) ON imported TO sluice_gateway;

-- Raw deliveries of webhooks: written, settled by a replay, ended once they are old.
GRANT SELECT, INSERT, UPDATE (verdict, reason, error, event_id, body, body_bytes), DELETE
    ON webhook_delivery TO sluice_gateway;

-- Keys of projects are claimed; the claim of a project that was never written is given up.
GRANT SELECT, INSERT, DELETE ON project_key TO sluice_gateway;

-- Names are given and retired; none is deleted, and none is changed but for being retired.
GRANT SELECT, INSERT, UPDATE (retired) ON alias TO sluice_gateway;
GRANT SELECT, INSERT, UPDATE (greatest) ON alias_counter TO sluice_gateway;
GRANT SELECT, INSERT, UPDATE (version) ON alias_position TO sluice_gateway;
GRANT SELECT, INSERT, UPDATE (seq, declared, spec_rev) ON alias_scan TO sluice_gateway;

-- PUT /_/spec, and how far each gateway has followed.
GRANT SELECT, INSERT ON spec_revision TO sluice_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON spec_closing, catalog_reader TO sluice_gateway;
GRANT SELECT, UPDATE (revision) ON catalog_clock TO sluice_gateway;

-- Timers and sagas, which are deleted some time behind their end, and how far the process that sets them has looked.
GRANT SELECT, INSERT, UPDATE ON reacting, schedule, saga TO sluice_gateway;
GRANT DELETE ON schedule, saga TO sluice_gateway;

-- Who is signed in to the console.
GRANT SELECT, INSERT, DELETE ON console_session TO sluice_gateway;
COMMIT;

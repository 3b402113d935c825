-- Tenants come from elsewhere, rest, and go: suspended, or emptied step by step.
ALTER TABLE tenant ADD COLUMN suspended_at timestamptz;

ALTER TABLE api_key DROP CONSTRAINT api_key_scope_check;
ALTER TABLE api_key ADD CONSTRAINT api_key_scope_check CHECK (scope IN ('read', 'write', 'admin', 'operator'));

-- A tenant that is going, or gone; its id is never used again. `revision` is the catalog clock's when that was asked
-- for: what gateways that follow it have accepted has landed. `name` is kept until it is gone.
CREATE TABLE tenant_deletion (
    tenant       uuid PRIMARY KEY,
    name         text,
    handle       text NOT NULL,
    revision     bigint NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    events       bigint NOT NULL,
    deleted      bigint NOT NULL DEFAULT 0,
    finished_at  timestamptz
);

-- One step: empties or deletes at most `most` rows of a tenant that is going. False: there is more to do.
-- Events leave their places in the order of their partition, which has no gaps, and the digests by which an audit
-- knows that no other tenant's are missing; what they said, of whom, and what they were called is gone. All other
-- tables with a column `tenant` lose the tenant's rows: a table that is added later too.
CREATE FUNCTION delete_tenant_step(of_tenant uuid, most int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE
    place text;
    gone bigint;
BEGIN
    PERFORM FROM public.tenant_deletion WHERE tenant = of_tenant AND finished_at IS NULL FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NOT EXISTS (SELECT FROM public.tenant_deletion WHERE tenant = of_tenant AND finished_at IS NULL);
    END IF;
    UPDATE public.outbox SET aggregate_type = '', aggregate_id = seq::text, type = '', actor_type = '',
        actor_id = '', target_type = NULL, target_id = NULL, causation_id = NULL, extra = NULL, payload = NULL,
        correlation_id = '00000000-0000-0000-0000-000000000000'
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM public.outbox WHERE tenant = of_tenant AND aggregate_type > '' LIMIT most));
    GET DIAGNOSTICS gone = ROW_COUNT;
    IF gone > 0 THEN
        UPDATE public.tenant_deletion SET deleted = deleted + gone, events = greatest(events, deleted + gone)
        WHERE tenant = of_tenant;
        RETURN false;
    END IF;
    DELETE FROM public.source_key WHERE ctid = ANY (ARRAY(
        SELECT k.ctid FROM public.source_key k JOIN public.source_scope s ON s.id = k.scope_id
        WHERE s.tenant = of_tenant LIMIT most));
    GET DIAGNOSTICS gone = ROW_COUNT;
    IF gone > 0 THEN
        RETURN false;
    END IF;
    UPDATE public.api_key SET rotated_from = NULL WHERE tenant = of_tenant AND rotated_from IS NOT NULL;
    FOR place IN
        SELECT c.relname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attname = 'tenant'
            AND a.atttypid = 'uuid'::regtype AND c.relname NOT IN ('outbox', 'tenant_storage', 'tenant_deletion')
        ORDER BY c.relname
    LOOP
        BEGIN
            EXECUTE format('DELETE FROM public.%I WHERE ctid = ANY (ARRAY('
                'SELECT ctid FROM public.%I WHERE tenant = $1 LIMIT $2))', place, place) USING of_tenant, most;
            GET DIAGNOSTICS gone = ROW_COUNT;
            IF gone > 0 THEN
                RETURN false;
            END IF;
        EXCEPTION WHEN foreign_key_violation THEN
            CONTINUE;  -- the table whose rows refer to it comes later
        END;
    END LOOP;
    UPDATE public.tenant_storage SET bytes = 0 WHERE tenant = of_tenant;
    DELETE FROM public.tenant WHERE id = of_tenant;
    UPDATE public.tenant_deletion SET name = NULL, finished_at = clock_timestamp() WHERE tenant = of_tenant;
    UPDATE public.catalog_clock SET revision = revision + 1;
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION delete_tenant_step FROM PUBLIC;

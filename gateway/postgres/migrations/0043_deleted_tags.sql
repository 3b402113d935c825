-- Tags of a tenant that is going: a tag is a hash, so a gateway reads what the events say, and names the rows.
CREATE FUNCTION delete_tags_step(of_tenant uuid, tags uuid[], seqs bigint[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE
    gone bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM public.tenant_deletion WHERE tenant = of_tenant AND finished_at IS NULL) THEN
        RETURN 0;
    END IF;
    DELETE FROM public.event_tag e USING unnest(tags, seqs) AS d(tag, seq) WHERE e.tag = d.tag AND e.seq = d.seq;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $$;
REVOKE ALL ON FUNCTION delete_tags_step FROM PUBLIC;

-- Appends of it that Postgres refused go too: their entries name the tenant in its 16 bytes. There are none, or few.
DO $$ BEGIN
    EXECUTE replace(pg_get_functiondef('delete_tenant_step'::regproc),
        'UPDATE public.tenant_storage SET bytes = 0',
        'DELETE FROM public.quarantined_append WHERE position(uuid_send(of_tenant) IN entry) > 0;
    UPDATE public.tenant_storage SET bytes = 0');
END $$;

-- Deletes keys of a tenant that ended, the oldest first: any key makes others, which end, so there is no limit to their
-- number. Not those that ended just now: gateways find by their rows that they did.
CREATE FUNCTION forget_keys(of_tenant uuid, most int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE
    gone text[] := ARRAY(
        SELECT handle FROM public.api_key
        WHERE tenant = of_tenant AND least(revoked_at, expires_at) < now() - interval '10 minutes'
        ORDER BY least(revoked_at, expires_at), handle LIMIT most);
BEGIN
    UPDATE public.api_key SET rotated_from = NULL WHERE rotated_from = ANY (gone);
    DELETE FROM public.api_key WHERE handle = ANY (gone);
END $$;
REVOKE ALL ON FUNCTION forget_keys FROM PUBLIC;

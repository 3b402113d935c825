-- Whose an alias is, as one text. Beside the primary key, an index that began with the tenant too was one of two: of
-- a tenant that the statistics do not know yet Postgres took either, and where it was the wrong one each look-up went
-- through all its names. Now every look-up has one index that fits.
DROP INDEX alias_aggregate;
CREATE INDEX alias_owner ON alias (((tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"));

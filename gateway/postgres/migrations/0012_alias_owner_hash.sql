-- Whose an alias is, found by a hash. It is only ever asked for whole, and keys have no order: each new name went to
-- another page of a tree of long texts, which cost more than all else that is done for a name in Postgres.
DROP INDEX alias_owner;
CREATE INDEX alias_owner ON alias USING hash (((tenant::text || '/' || aggregate_type || '/' || aggregate_id) COLLATE "C"));

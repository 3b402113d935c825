-- Which events can be found by which declared tag. `tag` is the beginning of a hash over tenant and tag
-- (gateway/events.py): rows are small, and tell nothing to whoever does not know the tag. `seq` is in the partition
-- of the tenant. Written by the commit of the event, and by `sluice tags backfill`.
CREATE TABLE event_tag (
    tag uuid NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (tag, seq)
);
-- What is hashed for a tenant, as the values of hashed tags, is hashed with this.
ALTER TABLE tenant ADD COLUMN salt bytea NOT NULL
    DEFAULT decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex');

-- In which form the receipt of an event's append is, where its rows don't tell: 1 a batch of one event, 2 events that
-- name their aggregates and all name the same one (docs/decisions/0055). NULL in all others, and in older rows.
ALTER TABLE outbox ADD COLUMN form smallint;

-- The revision of its type that an event was appended under; NULL stands for 1, which takes no room.
ALTER TABLE outbox ADD COLUMN revision int CHECK (revision > 1);

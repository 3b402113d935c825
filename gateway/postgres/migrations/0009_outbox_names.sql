-- Names are compared by their bytes. The order of a locale changes with the system's libraries, and then an index
-- that was built by the old one misses rows: a stream would seem shorter than it is.
ALTER TABLE outbox
    ALTER COLUMN aggregate_type TYPE text COLLATE "C",
    ALTER COLUMN aggregate_id TYPE text COLLATE "C";

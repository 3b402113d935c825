-- Timers of events that could not be set: how many, when the last one, and which one and why. A person corrects the spec.
ALTER TABLE reacting ADD COLUMN not_set bigint NOT NULL DEFAULT 0, ADD COLUMN not_set_at timestamptz,
    ADD COLUMN not_set_last text;

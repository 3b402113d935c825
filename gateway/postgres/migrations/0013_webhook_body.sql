-- The body of a delivery that its event holds byte for byte is not kept twice: it is so many bytes of the event's
-- payload, and NULL where it stands in the row itself. `headers` is MessagePack from now on; a list of pairs in JSON,
-- which rows of before keep, begins with another byte.
ALTER TABLE webhook_delivery ADD COLUMN body_bytes int;

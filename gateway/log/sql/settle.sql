-- Waits until all that was committed before is as durable as a commit is here: changes nothing, but writes, and
-- only what writes waits for a standby. $1 p
UPDATE partition_log SET owner = owner WHERE p = $1 RETURNING 1

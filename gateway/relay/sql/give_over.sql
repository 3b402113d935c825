-- What waits is another target's from here on: tried at once, with its whole schedule. What is parked stays so.
-- $1 subscription
UPDATE straggler SET state = 'retrying', attempts = 0, due_at = now(), error = NULL, claim = NULL, claimed_to = NULL
WHERE subscription = $1 AND state <> 'parked'

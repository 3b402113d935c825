-- Why nothing is delivered. $1 id, $2 why
UPDATE subscription SET why = $2 WHERE id = $1 AND why IS DISTINCT FROM $2

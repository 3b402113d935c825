-- $1 tenant, $2 how many events are in the tables now
UPDATE alias_position SET version = $2 WHERE tenant = $1

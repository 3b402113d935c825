-- $1 tenant
DELETE FROM alias_counter WHERE tenant = $1

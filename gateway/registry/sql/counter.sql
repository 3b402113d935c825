-- The greatest number of a key of public ids. $1 tenant, $2 key
SELECT greatest FROM alias_counter WHERE tenant = $1 AND prefix = $2

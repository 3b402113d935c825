-- The kinds of targets are one table in the code, which reads each document before it is stored. A list of them here would
-- be a second one.
ALTER TABLE subscription DROP CONSTRAINT subscription_kind_check;

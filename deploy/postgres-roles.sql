-- The roles and the database, once, as a superuser of a new server. The passwords are read from two files:
--     OWNER_PASSWORD_FILE=… GATEWAY_PASSWORD_FILE=… psql -f deploy/postgres-roles.sql
--
-- sluice_owner owns the tables: `sluice migrate`, `sluice tenants` and `sluice keys` run as it.
-- sluice_gateway is what `sluice serve` runs as: postgres-grants.sql says what it may do.

\set ON_ERROR_STOP on
\set owner_password `cat "$OWNER_PASSWORD_FILE"`
\set gateway_password `cat "$GATEWAY_PASSWORD_FILE"`

CREATE ROLE sluice_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE sluice_gateway LOGIN PASSWORD :'gateway_password';
-- A limit meant for people must not cancel a commit.
ALTER ROLE sluice_gateway SET statement_timeout = 0;
ALTER ROLE sluice_gateway SET lock_timeout = 0;

-- Sorted by bytes: an upgrade of the operating system that sorts letters in another order would break the indexes.
CREATE DATABASE sluice OWNER sluice_owner TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C';
REVOKE ALL ON DATABASE sluice FROM PUBLIC;
GRANT CONNECT ON DATABASE sluice TO sluice_gateway;

\connect sluice
-- Before PostgreSQL 15 anybody may create tables here.
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT ALL ON SCHEMA public TO sluice_owner;
GRANT USAGE ON SCHEMA public TO sluice_gateway;

// Emmett behind fastify. It listens on the socket SLUICE_LISTEN_FD; PEER_POSTGRES_URL says where events go.
// POST /{type}/{id}/{event type} appends one event at `metadata.previous_length`; any GET is a 200.

import { createRequire } from "node:module";

// Installed in a folder of their own, where this file does not lie.
const require = createRequire(`${process.env.PEER_MODULES}/package.json`);
const { getPostgreSQLEventStore } = require("@event-driven-io/emmett-postgresql");
const Fastify = require("fastify");
const pg = require("pg");

const url = process.env.PEER_POSTGRES_URL;
const pool = new pg.Pool({ connectionString: url, max: Number(process.env.PEER_POOL) });
const store = getPostgreSQLEventStore(url, { connectionOptions: { pool } });
await store.schema.migrate();

const server = Fastify();
server.get("/*", async () => ({ ok: true }));
server.post("/:type/:id/:event", async (request, reply) => {
  const { type, id, event } = request.params;
  const { data, metadata } = request.body;
  const appended = await store.appendToStream(`${type}-${id}`, [{ type: event, data, metadata: { actor: metadata.actor } }], {
    expectedStreamVersion: BigInt(metadata.previous_length),
  });
  reply.code(201);
  return { ok: true, key: id, length: Number(appended.nextExpectedStreamVersion) };
});
await server.ready();
server.server.listen({ fd: Number(process.env.SLUICE_LISTEN_FD) });
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => process.exit(0));

// A read model of Emmett: a consumer with Pongo's projection over several streams. For projections.py, which says what
// is asked of it. Arguments: events, rows, events one at a time; PEER_POSTGRES_URL says where all of it goes.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.PEER_MODULES}/package.json`);
const { getPostgreSQLEventStore, pongoMultiStreamProjection, postgreSQLEventStoreConsumer } = require("@event-driven-io/emmett-postgresql");
const pg = require("pg");
const [events, rows, singly] = process.argv.slice(2).map(Number);
const url = process.env.PEER_POSTGRES_URL;
const say = (told) => console.log(JSON.stringify(told));
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const customer = (n) => `a0000000-0000-4000-a000-${String((n * 7919) % rows).padStart(12, "0")}`;
const event = (n) => ({ type: "was_placed", data: { customer_id: customer(n), total: n % 100, currency: "EUR" } });

const store = getPostgreSQLEventStore(url);
await store.schema.migrate();
for (let first = 0; first < events; first += 1000) {
  const some = Array.from({ length: Math.min(1000, events - first) }, (_, n) => event(first + n));
  await store.appendToStream(`order-${first}`, some);
}
const reader = new pg.Client({ connectionString: url });
await reader.connect();
await reader.query("VACUUM ANALYZE");

const consumer = postgreSQLEventStoreConsumer({ connectionString: url, pulling: { batchSize: 1000, pullingFrequencyInMs: 5 } });
consumer.projector({
  processorId: "totals",
  projection: pongoMultiStreamProjection({
    collectionName: "totals",
    canHandle: ["was_placed"],
    getDocumentId: ({ data }) => data.customer_id,
    initialState: () => ({ orders: 0, spent: 0 }),
    evolve: (row, { data }) => ({ ...row, orders: row.orders + 1, spent: row.spent + data.total }),
  }),
});

say("ready");
for await (const _ of createInterface({ input: process.stdin })) break;
const began = process.hrtime.bigint(), cpu = process.cpuUsage();
consumer.start();
const counted = async () => {
  try {
    return Number((await reader.query("SELECT sum((data->>'orders')::bigint) AS n FROM totals")).rows[0].n);
  } catch {
    return 0; // its table is not there yet
  }
};
while ((await counted()) < events) await pause(100);
const used = process.cpuUsage(cpu);
say({ seconds: Number(process.hrtime.bigint() - began) / 1e9, cpu: (used.user + used.system) / 1e6 });

const waits = [];
for (let n = 0; n < singly; n += 1) {
  const key = `b0000000-0000-4000-a000-${String(n).padStart(12, "0")}`;
  await store.appendToStream(`single-${n}`, [{ type: "was_placed", data: { customer_id: key, total: 1 } }]);
  const answered = process.hrtime.bigint();
  while (!(await reader.query("SELECT FROM totals WHERE _id = $1", [key])).rowCount) await pause(1);
  waits.push(Number(process.hrtime.bigint() - answered) / 1e6);
}
say({ waits });
process.exit(0);

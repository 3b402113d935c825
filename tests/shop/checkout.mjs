// The checkout of checkout.py, for Node and for pages: the same keys, so the same receipts.
//
//   SLUICE_URL=… SLUICE_KEY_FILE=… node checkout.mjs CART ITEM

const CARTS = "8d0f8e3e-0a52-4c57-9d63-3f8a5f0f3a11";
const ACTOR = { type: "service", id: "checkout" };
const RETRYABLE = new Set([429, 503, 504]);

async function uuid5(name) {
  const space = Uint8Array.from(CARTS.replaceAll("-", "").match(/../g), (pair) => parseInt(pair, 16));
  const bytes = new Uint8Array([...space, ...new TextEncoder().encode(name)]);
  const made = new Uint8Array(await crypto.subtle.digest("SHA-1", bytes)).slice(0, 16);
  made[6] = (made[6] & 0x0f) | 0x50;
  made[8] = (made[8] & 0x3f) | 0x80;
  const hex = Array.from(made, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** Repeated with the same bytes until it is settled; refusals are thrown, with `code` and what else was answered. */
async function send(shop, method, path, body, headers = {}) {
  const text = body === undefined ? undefined : JSON.stringify(body);
  for (let pause = 50, until = Date.now() + 60_000; ; pause = Math.min(pause * 2, 2000)) {
    const response = await fetch(shop.url + path, {
      method,
      headers: { authorization: `Bearer ${shop.key}`, ...(text && { "content-type": "application/json" }), ...headers },
      body: text,
    }).catch(() => null);
    if (response && !RETRYABLE.has(response.status)) {
      const answer = await response.json();
      if (!response.ok) throw Object.assign(new Error(answer.error), answer);
      return answer;
    }
    if (Date.now() + pause > until) throw new Error(`not settled: ${method} ${path}`);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

const append = (shop, path, data, metadata, headers) =>
  send(shop, "POST", path, { data, metadata: { actor: ACTOR, ...metadata } }, headers);

/** False where the item is sold out. `at` is awaited before each step and, with its receipt, after it. */
export async function checkOut(shop, cart, item, at) {
  const [customer, order] = [await uuid5(`customer:${cart}`), await uuid5(`order:${cart}`)];
  const step = async (name, appended) => {
    await at(name, null);
    const { key, event_id, length, aliases = [] } = await appended(`${cart}:${name}`);
    await at(name, { key, event_id, length, aliases });
  };
  await step("register", (key) =>
    append(shop, `/customer/${customer}/was_registered`, { name: cart }, {}, { "idempotency-key": key, prefer: "wait" }),
  );
  try {
    await step("reserve", async (key) =>
      append(shop, `/item/${item}/was_reserved`, { order, quantity: 1 }, { event_id: await uuid5(key) }),
    );
  } catch (refused) {
    if (refused.code !== "rule_violated") throw refused;
    return false;
  }
  await step("place", (key) =>
    append(shop, `/order/${order}/was_placed`, { customer, item }, { previous_length: 0 }, { "idempotency-key": key, prefer: "wait" }),
  );
  await step("confirm", (key) => confirm(shop, order, key));
  return true;
}

/** At the length that this life reads, which payments change: the refusal brings what an earlier one did. */
async function confirm(shop, order, key) {
  for (;;) {
    const { length } = await send(shop, "GET", `/order/${order}/length`);
    try {
      return await append(shop, `/order/${order}/was_confirmed`, {}, { previous_length: length }, { "idempotency-key": key });
    } catch (refused) {
      if (refused.code === "idempotency_mismatch") return refused.receipt;
      if (refused.code !== "version_conflict") throw refused;
    }
  }
}

if (globalThis.process?.argv[1]?.endsWith("checkout.mjs")) {
  const { readFileSync } = await import("node:fs");
  const { createInterface } = await import("node:readline");
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const shop = { url: process.env.SLUICE_URL, key: readFileSync(process.env.SLUICE_KEY_FILE, "utf8").trim() };
  await checkOut(shop, process.argv[2], process.argv[3], async (step, receipt) => {
    console.log(JSON.stringify({ step, receipt }));
    await lines.next();
  });
  process.exit(0);
}

// What the client adds to a call, beside the bare stubs: both make the same Evaluate and Record, in turns, in one
// process. npm run bench [CALLS]; against the server that CALLGATE_SERVER names, else one that answers at once
// (echo.mjs).
import { fork } from "node:child_process";
import { once as happens } from "node:events";

import { Client } from "@callgate/client";
import { OutcomeStatus } from "@callgate/client/v1";

const CALLS = Number(process.argv[2] ?? 2000);
const CONCURRENT = 1000;
const echo = process.env.CALLGATE_SERVER ? undefined : fork(new URL("echo.mjs", import.meta.url));
const server = echo && `http://127.0.0.1:${(await happens(echo, "message"))[0]}`;
const client = new Client({ server });
let sessions = 0;
const newSession = () => `bench-${process.pid}-${Date.now()}-${++sessions}`;

async function bare() {
  const caller = { sessionId: newSession() };
  const call = { callId: "c", tool: "bench_look", argumentsJson: '{"n":1}' };
  await client.calls.evaluate({ caller, call });
  await client.calls.record({ caller, callId: "c", status: OutcomeStatus.SUCCESS, result: "1" });
}

async function gated() {
  const outcome = await client.gate(newSession()).run("bench_look", { n: 1 }, () => 1, { callId: "c" });
  if (!outcome.recorded) throw new Error(outcome.text);
}

/** Microseconds of time and of processor for each call. */
async function once(run, all) {
  const cpu = process.cpuUsage();
  const began = performance.now();
  await run();
  const { user, system } = process.cpuUsage(cpu);
  all.push({ time: (performance.now() - began) * 1000, cpu: user + system });
}

const at = (all, key, share) => all.map((one) => one[key]).sort((a, b) => a - b)[Math.floor(all.length * share)];

const [stub, gate] = [[], []];
for (let warm = 0; warm < 200; warm++) await (warm % 2 ? bare() : gated());
for (let call = 0; call < CALLS; call++) {
  // Who goes first changes, so that neither has the warmer server.
  const turns = [() => once(bare, stub), () => once(gated, gate)];
  for (const turn of call % 2 ? turns : turns.reverse()) await turn();
}
const rows = Object.fromEntries(
  [
    ["time", 0.5],
    ["time", 0.99],
    ["cpu", 0.5],
    ["cpu", 0.99],
  ].map(([key, share]) => {
    const [a, b] = [at(stub, key, share), at(gate, key, share)];
    return [`${key} p${share * 100} µs`, { stub: Math.round(a), gate: Math.round(b), added: Math.round(b - a) }];
  }),
);
console.table(rows);

for (const [name, run] of Object.entries({ stub: bare, gate: gated })) {
  const began = performance.now();
  await Promise.all(Array.from({ length: CONCURRENT }, run));
  const ms = Math.round(performance.now() - began);
  const heap = Math.round(process.memoryUsage().rss / 2 ** 20);
  console.log(`${name}: ${CONCURRENT} calls at once in ${ms} ms, ${heap} MiB resident`);
}
await client.close();
echo?.kill();

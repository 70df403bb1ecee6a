/** What makes something else each time, through every client: creates stop, what only looks like one does not. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { z } from "zod";

import { type Args, PLAYERS } from "./players.js";
import { POLICY } from "./policy.js";
import { newSession, Stage } from "./stage.js";

const client = (await Stage.serve({ after }, POLICY)).client();

const TURNS = 8;
const WORDS = ["printer", "door", "lamp", "chair", "phone", "screen", "heater", "desk"];
const ROLLS = [4, 1, 6, 2, 5, 3, 6, 1];
const CREATES: Record<string, (n: number) => unknown> = {
  create_refund: (n) => ({
    id: `re_1NirD82eZvKYlo2C${1000 + n}`,
    object: "refund",
    amount: 2000,
    charge: "ch_1NirD82eZvKYlo2C",
    created: Math.floor(Date.now() / 1000),
    status: "succeeded",
  }),
  open_ticket: (n) => `Your ticket number is ${88120 + n}. We will come back to you soon.`,
  create_issue: (n) => ({ content: [{ type: "text", text: `Created issue ENG-${411 + n}` }] }),
};
const LOOK_ALIKES: Record<string, (n: number) => unknown> = {
  next_page: (n) => ({ items: [{ id: 70 + n, name: WORDS[n] }], next_cursor: `c${n}Zq8vT1` }),
  roll_dice: (n) => ({ roll: ROLLS[n] }),
  next_ticket: (n) => ({ id: `T-${n}`, subject: `the ${WORDS[n]} is broken` }),
};

/** How often the tool was executed, and what the model reads of each of its identical calls. */
async function played(player: string, name: string, answer: (n: number) => unknown) {
  let executions = 0;
  const tool = { name, shape: { text: z.string() }, execute: async () => answer(executions++) };
  async function* script(): AsyncGenerator<Args> {
    for (let turn = 0; turn < TURNS; turn++) yield { text: "blue office shirts" };
  }
  const texts = await PLAYERS[player]!(client, newSession(), tool, script());
  assert.equal(texts.length, TURNS);
  return { executions, texts };
}

for (const player of Object.keys(PLAYERS)) {
  for (const [name, answer] of Object.entries(CREATES)) {
    test(`a create is refused at the fifth time: ${name} by ${player}`, async () => {
      const { executions, texts } = await played(player, name, answer);
      assert.equal(executions, 4, texts.join("\n"));
      for (const text of texts.slice(4)) assert.match(text, /"status":"repeated_success"/);
    });
  }
  for (const [name, answer] of Object.entries(LOOK_ALIKES)) {
    test(`what looks like a create is never refused: ${name} by ${player}`, async () => {
      const { executions, texts } = await played(player, name, answer);
      assert.equal(executions, TURNS, texts.join("\n"));
    });
  }
}

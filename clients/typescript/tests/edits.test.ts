// Arguments that a person approves instead of the model's, through every client: they run, and the model is told so.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { z } from "zod";

import { type Args, PLAYERS } from "./players.js";
import { POLICY } from "./policy.js";
import { newSession, Stage } from "./stage.js";

const client = (await Stage.serve({ after }, POLICY)).client();

/** Edits the first request of a session. */
async function edit(sessionId: string, args: Args): Promise<void> {
  for (;;) {
    const { approvals } = await client.approvals.listApprovals({ sessionId });
    const [approval] = approvals;
    if (!approval) continue;
    const by = { headers: { "callgate-by": "ada" } };
    const { approvalId } = approval;
    const request = { approvalId, approve: true, editedArgumentsJson: JSON.stringify(args) };
    return void (await client.approvals.resolveApproval(request, by));
  }
}

for (const [player, play] of Object.entries(PLAYERS)) {
  test(`an edited call runs with the approved arguments alone, and once: ${player}`, async () => {
    const session = newSession();
    const given: Args[] = [];
    const execute = (args: Args) => ({ sent: given.push({ ...args }) });
    const tool = { name: "ask_boss", shape: { text: z.string() }, execute };
    async function* script(): AsyncGenerator<Args> {
      yield { text: `raise ${session}` };
    }
    const edited = { text: `raise by ada ${session}` };
    const [[text]] = await Promise.all([play(client, session, tool, script()), edit(session, edited)]);
    assert.deepEqual(given, [edited]);
    assert.match(text!, /A person approved this call with other arguments instead of yours, which did not run/);
    assert.match(text!, /by ada/);
  });
}

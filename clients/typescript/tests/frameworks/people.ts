// The people whom a server asks.
import { ApprovalState, type Client } from "@callgate/client";

type Decide = (args: any) => { approve: boolean; reason?: string };

/** Answers each question of a session as `decide` says, in the name of "ada", until they are sent away. */
export function person(client: Client, sessionId: string, decide: Decide): () => Promise<void> {
  let isHere = true;
  const work = (async () => {
    while (isHere) {
      const { approvals } = await client.approvals.listApprovals({ sessionId, state: ApprovalState.PENDING });
      for (const { approvalId, argumentsJson } of approvals)
        await ada(client, approvalId, decide(JSON.parse(argumentsJson)));
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  })();
  return () => {
    isHere = false;
    return work;
  };
}

/** The answer of one of them. */
export async function ada(
  client: Client,
  approvalId: string,
  answer: { approve: boolean; reason?: string },
): Promise<void> {
  await client.approvals.resolveApproval({ approvalId, ...answer }, { headers: { "callgate-by": "ada" } });
}

/** Answers to questions that a framework's own user gives. */
import type { Client } from "./index.js";

/** An answer: yes or no, with a reason that the model is told of a no, and with whose it is. */
export type Answer =
  | boolean
  | { approve: boolean; reason?: string | undefined; by?: string | undefined }
  | { decisions: readonly { type: string; message?: string }[] };

/**
 * Answers a question in callgate, if that is what a framework hands on; anything else says that somebody has answered
 * it there. By default it is the answer of "user".
 *
 * @throws CallgateError where who answers may not.
 */
export async function answerQuestion(client: Client, approvalId: string, answer: unknown): Promise<void> {
  const given = read(answer);
  if (!given) return;
  const { approve, reason = "", by = "user" } = given;
  await client.approvals.resolveApproval({ approvalId, approve, reason }, { headers: { "callgate-by": by } });
}

function read(answer: unknown): { approve: boolean; reason?: string | undefined; by?: string | undefined } | undefined {
  if (typeof answer === "boolean") return { approve: answer };
  if (typeof answer !== "object" || answer === null) return undefined;
  if ("approve" in answer && typeof answer.approve === "boolean") return answer as { approve: boolean };
  const { type, message } = (answer as { decisions?: { type: string; message?: string }[] }).decisions?.[0] ?? {};
  if (type !== "approve" && type !== "reject") return undefined;
  return { approve: type === "approve", ...(message && { reason: message }) };
}

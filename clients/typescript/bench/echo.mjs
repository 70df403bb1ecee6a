// A plane that permits and takes everything at once, so that what the client adds is not lost in what a database takes.
import { createServer } from "node:http2";

import { Decision, GateService, OutcomeStatus } from "@callgate/client/v1";
import { connectNodeAdapter } from "@connectrpc/connect-node";

const permit = () => ({ idempotencyKey: "0".repeat(32), attempt: 1, leaseExpireTime: { seconds: 4_000_000_000n } });
const methods = {
  evaluate: () => ({ verdict: { decision: Decision.ALLOW, permit: permit() } }),
  record: () => ({ status: OutcomeStatus.SUCCESS, toolResultJson: '{"status":"success","results":1}' }),
};
const server = createServer(connectNodeAdapter({ routes: (router) => router.service(GateService, methods) }));
server.listen(0, "127.0.0.1", () => process.send(server.address().port));

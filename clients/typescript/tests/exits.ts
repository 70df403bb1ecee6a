/** A process that ends while a call runs. */
import { Client } from "@callgate/client";

const [, , server, sessionId] = process.argv;
await new Client({ server }).gate(sessionId ?? "").run("brief_write", {}, () => process.exit(7));

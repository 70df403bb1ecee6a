/** A program that closes nothing. */
import { Client } from "@callgate/client";

await new Client({ server: process.argv[2] }).gate("s").run("pay", {}, () => "paid", { callId: "c" });

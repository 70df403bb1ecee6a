// Writes src/gen anew from the contract; with --check it fails if that would change anything.
import { execSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";

// What the errors of callgate carry, with the names and numbers that google.rpc gives it, and no more of it than that.
const ERROR_DETAILS = `
syntax = "proto3";
package google.rpc;
import "google/protobuf/duration.proto";
// Why, by a stable name.
message ErrorInfo {
  // As the contract lists it.
  string reason = 1;
  // Whose reasons these are: callgate.
  string domain = 2;
  // What the reason says more.
  map<string, string> metadata = 3;
}
// When to ask again.
message RetryInfo {
  // After how long.
  google.protobuf.Duration retry_delay = 1;
}
// What is wrong with a request.
message BadRequest {
  // What is wrong with one field.
  message FieldViolation {
    // Its path.
    string field = 1;
    // What is wrong.
    string description = 2;
  }
  // The fields.
  repeated FieldViolation field_violations = 1;
}
`;

const run = (command) => execSync(command, { stdio: "inherit" });
const isCheck = process.argv.includes("--check");
const out = isCheck ? "target/generated" : ".";
mkdirSync("target/proto/google/rpc", { recursive: true });
writeFileSync("target/proto/google/rpc/error_details.proto", ERROR_DETAILS);
rmSync(`${out}/src/gen`, { recursive: true, force: true });
run(`npx --no-install buf generate --output ${out}`);
if (isCheck) run("diff -r src/gen target/generated/src/gen");

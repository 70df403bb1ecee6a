// Generates src/gen, the messages and services of the contract, from proto/ of the checkout.
import { execSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";

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

if (!existsSync("../../proto/callgate/v1")) {
  console.error("src/gen cannot be generated: there is no ../../proto/callgate/v1. Use a checkout of the repository.");
  process.exit(1);
}
mkdirSync("target/proto/google/rpc", { recursive: true });
writeFileSync("target/proto/google/rpc/error_details.proto", ERROR_DETAILS);
rmSync("src/gen", { recursive: true, force: true });
execSync("npx --no-install buf generate", { stdio: "inherit" });

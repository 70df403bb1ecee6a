// npm runs this for whoever installs this folder, as a link or packed. What is linked has no dependencies yet.
import { execSync } from "node:child_process";
import { copyFileSync, existsSync } from "node:fs";

const run = (command) => execSync(command, { stdio: "inherit" });
if (!existsSync("node_modules/typescript")) run("npm install --ignore-scripts --no-package-lock");
run("npm run build");
copyFileSync("../../CHANGELOG.md", "CHANGELOG.md");

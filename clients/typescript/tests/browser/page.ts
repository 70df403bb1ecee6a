// What the page runs: the package as a bundler takes it for a browser.
import * as callgate from "@callgate/client";

Object.assign(globalThis, { callgate });

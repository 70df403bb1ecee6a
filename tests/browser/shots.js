// Pictures of every page in both themes: node shots.js FOLDER, run by `tests/browser/test CALLGATE --shots FOLDER`.
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { told } from "./story.js";

const [folder] = process.argv.slice(2);
await mkdir(folder, { recursive: true });
await told(async (plane, page, paths) => {
  for (const path of paths) {
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await page.goto(plane.url + path);
      await page.waitForTimeout(1_200);
      const parts = path.split(/[/?]/).filter(Boolean);
      const name = parts.length > 1 ? `${parts[0]}-one` : parts[0] ?? "now";
      await page.screenshot({ path: join(folder, `${name}-${colorScheme}.png`), fullPage: true });
    }
  }
});

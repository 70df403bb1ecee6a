// Pictures of every page in both themes, and on a phone: node shots.js FOLDER, run by `tests/browser/test CALLGATE --shots FOLDER`.
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { told } from "./story.js";

const [folder] = process.argv.slice(2);
await mkdir(folder, { recursive: true });
await told(async (plane, page, paths) => {
  for (const path of paths) {
    for (const [colorScheme, width] of [["light", 1280], ["dark", 1280], ["light", 390]]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await page.goto(plane.url + path);
      await page.waitForTimeout(1_200);
      const parts = path.split(/[/?]/).filter(Boolean);
      const below = ["bulk", "descriptions", "rollout"].includes(parts[1]) ? parts[1] : "one";
      const name = parts.length > 1 ? `${parts[0]}-${below}` : parts[0] ?? "now";
      const window = width < 500 ? "phone" : colorScheme;
      await page.screenshot({ path: join(folder, `${name}-${window}.png`), fullPage: true });
    }
  }
});

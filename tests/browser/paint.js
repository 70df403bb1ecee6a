// How long it takes until a page is first painted: node paint.js, run by `tests/browser/test CALLGATE --paint`. Each page is
// loaded eleven times; told are the first, and the median and the slowest of the others, in milliseconds. What the browser
// itself takes for a page of one word is told before.
import { told } from "./story.js";

await told(async (plane, page, paths) => {
  const pages = paths.map((path) => [path, plane.url + path]);
  for (const [path, url] of [["one word", "data:text/html,<title>callgate</title>word"], ...pages]) {
    const took = [];
    for (let n = 0; n < 11; n += 1) {
      await page.goto(url);
      took.push(await page.evaluate(() => new Promise((tell) => {
        const seen = (list) => {
          const found = list.getEntriesByName("first-contentful-paint")[0];
          if (found) tell(found.startTime);
        };
        new PerformanceObserver(seen).observe({ type: "paint", buffered: true });
      })));
    }
    const [first, ...others] = took.map(Math.round);
    others.sort((a, b) => a - b);
    console.log(`${String(others[4]).padStart(5)} ms  (first ${first}, slowest ${others.at(-1)})  ${path}`);
  }
});

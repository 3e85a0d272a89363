// A trace whose oldest events are folded (--max-size): the page says so, marks the time, and its numbers are print's.
import { join } from "node:path";
import { check, equal, go, has, holds, print, serve, settled, shots, trace, visit } from "./harness.mjs";

const VIEWS = ["summary", "stacks", "profile", "bottom-up", "top-down", "flame", "timeline", "sizes", "lifetimes", "threads", "leaks"];

const file = trace("folded");
const server = await serve([file]);
const page = await visit(server.url);
await settled(page);
const { totals, folded_until_ns } = print("summary", file);
const ask = async (view, query) => (await fetch(`${server.origin}/api/${view}?trace=0&${query}`, { headers: { cookie: `heaptrack_${server.port}=${server.token}` } })).json();

await check("that the oldest events are sums is said and marked", async () => {
  holds(folded_until_ns > 0, "something is folded");
  has(await page.locator("body").innerText(), "To keep the file small (--max-size)");
  const mark = page.locator(".folded");
  has(await mark.innerText(), "only the peak and what survived");
  const [box, plot] = [await mark.boundingBox(), await page.locator(".plot").boundingBox()];
  holds(box.width > plot.width / 4 && box.width < plot.width, `${box.width} of ${plot.width} pixels`);
});
await check("the peak is where it was, although its events are gone", async () => {
  holds(totals.peak_time_ns <= folded_until_ns, "it is folded");
  const answer = print("timeline", file);
  equal(answer.peak.time_ns, totals.peak_time_ns, "when");
  equal(answer.live_bytes[answer.peak.index], totals.peak_bytes, "how high");
  equal(print("profile", file, "--at", "peak").totals.live_bytes, totals.peak_bytes, "what was live");
  await page.locator(".peak").click();
  await settled(page);
  has(await page.locator(".figures").innerText(), "30.", "the hill");
});
await check("every answer is print's", async () => {
  const plain = (answer) => ({ ...answer, query: undefined });
  for (const [query, options] of [["", []], ["at=peak", ["--at", "peak"]], ["from=80%25", ["--from", "80%"]], ["thread=0", ["--thread", "0"]]]) {
    for (const view of VIEWS) equal(plain(await ask(view, query)), plain(print(view, file, ...options)), `${view}?${query}`);
  }
});
await check("a picture", async () => {
  await go(page, "#/summary");
  await page.screenshot({ path: join(shots, "folded.png") });
});

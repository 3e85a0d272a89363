// A trace whose oldest events are folded (--max-size). The page says so, marks the time, and shows the same numbers as print.
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bin, check, equal, go, has, holds, print, rows, serve, settled, shots, trace, traces, visit } from "./harness.mjs";

const VIEWS = ["summary", "stacks", "profile", "bottom-up", "top-down", "flame", "timeline", "sizes", "lifetimes", "threads", "leaks"];

const file = trace("folded");
const server = await serve([file]);
const page = await visit(server.url);
await settled(page);
const { totals, folded_until_ns } = print("summary", file);
const ask = async (view, query) => (await fetch(`${server.origin}/api/${view}?trace=0&${query}`, { headers: { cookie: `heaptrack_${server.port}=${server.token}` } })).json();

await check("that the oldest events are sums is said and marked", async () => {
  holds(folded_until_ns > 0, "something is folded");
  has(await page.locator("body").innerText(), "To keep the file small (--max-size, --keep-last)");
  const mark = page.locator(".folded");
  has(await mark.innerText(), "only the peak and surviving blocks");
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
await check("what a filter leaves of a folded peak is shown of the whole session, not of a part of it", async () => {
  const pill = () => page.$$eval('[data-number="pill peak_bytes"]', (list) => list.map((one) => Number(one.dataset.value)));
  await go(page, "#/summary?thread=0");
  equal(await pill(), [print("profile", file, "--thread", "0").totals.peak_bytes], "all of the time");
  const [from, to] = [0.8, 1.2].map((factor) => Math.round(totals.peak_time_ns * factor));
  await go(page, `#/summary?thread=0&zoomFrom=${from}&zoomTo=${to}`);
  equal(await pill(), [], "zoomed");
  await go(page, `#/summary?zoomFrom=${from}&zoomTo=${to}`);
  equal(await pill(), [totals.peak_bytes], "zoomed, without a filter");
});
await check("every answer is print's", async () => {
  const plain = (answer) => ({ ...answer, query: undefined });
  for (const [query, options] of [["", []], ["at=peak", ["--at", "peak"]], ["from=80%25", ["--from", "80%"]], ["thread=0", ["--thread", "0"]]]) {
    for (const view of VIEWS) equal(plain(await ask(view, query)), plain(print(view, file, ...options)), `${view}?${query}`);
  }
});
await check("in a report, ranges that begin with the session and later ones have print's costs", async () => {
  const html = join(traces, "folded.html");
  execFileSync(bin, ["report", "--summary-only", file, "-o", html], { stdio: "ignore" });
  const own = await visit(pathToFileURL(html).href);
  const end = Math.floor((print("timeline", file).range.to_ns * 250) / 256);
  for (const from of [0, Math.floor((print("timeline", file).range.to_ns * 10) / 256)]) {
    await go(own, `#/bottom-up?from=${from}&to=${end}&levels=all&cost=kept_bytes`);
    const seen = (await rows(own, "Bottom-up tree")).map((row) => ["peak_bytes", "allocations", "allocated_bytes"].map((cost) => Number(row.cells[cost])).join());
    const { roots } = print("bottom-up", file, "--collapse", "recursion", "--from", `${from}ns`, "--to", `${end}ns`);
    equal(seen.sort(), roots.map(({ total }) => [total.peak_bytes, total.allocations, total.allocated_bytes].join()).sort(), `from ${from}`);
  }
  await own.close();
});
await check("a picture", async () => {
  await go(page, "#/summary");
  await page.screenshot({ path: join(shots, "folded.png") });
});

// Blocks that the program's own allocators reported. They are a domain that can be selected in the page, with the same numbers as in print.
import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bin, check, equal, go, has, holds, print, rows, serve, settled, trace, traces, visit } from "./harness.mjs";

/** The number of blocks that tests/tests/page.rs takes from the pool. */
const TAKEN = 20_000;
const VIEWS = ["summary", "stacks", "profile", "bottom-up", "top-down", "callers", "flame", "timeline", "sizes", "memory", "lifetimes", "threads", "leaks", "source", "suppressions"];
const COSTS = ["peak_bytes", "leaked_bytes", "allocations", "temporary", "allocated_bytes"];

const file = trace("pool");
const server = await serve([file, trace("orders")]);
const page = await visit(server.url);
await settled(page);
const ask = async (view, query) => (await fetch(`${server.origin}/api/${view}?trace=0&${query}`, { headers: { cookie: `heaptrack_${server.port}=${server.token}` } })).json();
const choose = (name) => page.getByRole("group", { name: "Whose blocks" }).getByRole("button", { name }).click();
const figures = () => page.locator(".figures").innerText();
/** Compares the roots of the tree in the page with those of print. */
const isPrints = async (where, ...options) => {
  const seen = (await rows(where, "Bottom-up tree")).map((row) => COSTS.map((cost) => Number(row.cells[cost])).join());
  const wanted = print("bottom-up", file, "--hide", "all-but-mine", "--collapse", "recursion", ...options).roots;
  equal(seen.sort(), wanted.map(({ total }) => COSTS.map((cost) => total[cost]).join()).sort(), options.join(" "));
};

await check("the domain is chosen by a switch, stands in the address, and is left again", async () => {
  has(await figures(), "64.", "the pool's memory is malloc's");
  await choose("custom allocators");
  await page.waitForFunction(() => location.hash.includes("domain=custom"));
  await settled(page);
  equal(print("summary", file, "--domain", "custom").totals.allocations, TAKEN, "what the program took");
  has(await figures(), TAKEN.toLocaleString("en"));
  has(await page.locator('section[aria-label="Held at the peak"]').innerText(), "take", "whose code");
  await page.goBack();
  await settled(page);
  has(await figures(), "64.", "Back");
  await page.goForward();
  await settled(page);
  await choose("malloc");
  await settled(page);
  holds(!page.url().includes("domain"), page.url());
});
await check("every answer is print's of the same domain", async () => {
  const plain = (answer) => ({ ...answer, query: undefined });
  for (const [query, options] of [["", []], ["at=peak", ["--at", "peak"]], ["from=10%25&to=60%25", ["--from", "10%", "--to", "60%"]]]) {
    for (const view of VIEWS) equal(plain(await ask(view, `domain=custom&${query}`)), plain(print(view, file, "--domain", "custom", ...options)), `${view}?${query}`);
  }
});
await check("trees are print's of the same domain, filters too", async () => {
  await go(page, "#/bottom-up?domain=custom&levels=mine");
  await isPrints(page, "--domain", "custom");
  await go(page, "#/bottom-up?domain=custom&levels=mine&size=33..");
  await isPrints(page, "--domain", "custom", "--size", "33..");
  await go(page, "#/bottom-up?levels=mine");
  await isPrints(page);
});
await check("every view opens", async () => {
  for (const view of ["summary", "flame", "bottom-up", "top-down", "callers?fn=take", "consumed", "allocations", "temporary", "sizes", "lifetimes", "leaks", "threads?chart=threads", "source"]) {
    await go(page, `#/${view}${view.includes("?") ? "&" : "?"}domain=custom`);
    equal(await page.locator(".problem").count(), 0, view);
  }
});
await check("a trace without such blocks has no switch, and says so when asked for them", async () => {
  await go(page, "#/summary?file=1");
  await page.waitForSelector(".figures");
  equal(await page.getByRole("group", { name: "Whose blocks" }).count(), 0, "switch");
  await go(page, "#/summary?file=1&domain=custom");
  await page.waitForSelector(".lonely .problem");
  has(await page.locator(".lonely").innerText(), "has no blocks of custom allocators");
  await page.getByRole("button", { name: "Show malloc's blocks" }).click();
  await page.waitForSelector(".figures");
  const { status, stderr } = spawnSync(bin, ["print", "--domain", "custom", trace("orders")], { encoding: "utf8" });
  equal(status, 2, "print's exit code");
  has(stderr, "reported no blocks of custom allocators");
});
await check("a report has both domains", async () => {
  const html = join(traces, "pool.html");
  execFileSync(bin, ["report", "--summary-only", file, "-o", html]);
  const own = await visit(pathToFileURL(html).href, "#/bottom-up?domain=custom&levels=mine");
  await settled(own);
  await isPrints(own, "--domain", "custom");
  await go(own, "#/bottom-up?levels=mine");
  await isPrints(own);
  await own.close();
});
await page.close();
server.child.kill();

// The tab Memory: the parts of the resident memory at each instant, with the same numbers as in print, in the page of a server and in a report.
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bin, check, equal, go, has, holds, press, print, serve, settled, trace, traces, visit } from "./harness.mjs";

const file = trace("memory");
const wanted = print("memory", file);
const { instants, kinds, highest } = wanted;
const time = (index) => instants[index].time_ns;
const bare = trace("memory-off");
// A file of KDE's heaptrack has no parts of the memory.
const old = join(traces, "memory-old.gz");
execFileSync(bin, ["export", "--to", "heaptrack", trace("orders"), "-o", old], { stdio: "ignore" });
const server = await serve([file, bare, old]);
const page = await visit(server.url);
// High enough for all rows of the table.
await page.setViewportSize({ width: 1540, height: 2600 });
await page.reload();
await settled(page);

/** The exact values of the table, in its order. */
const table = (at) =>
  at.$$eval('[aria-label="Parts of the memory"] .grid-row', (list) =>
    list.map((row) => [Number(row.getAttribute("aria-rowindex")), ...["kind", "name", "rss_bytes", "pss_bytes"].map((id) => row.querySelector(`[data-column=${id}]`).dataset.value)]).sort((a, b) => a[0] - b[0]).map(([, ...cells]) => cells.join("|")),
  );
const lines = (instant) => instant.parts.map((part) => [part.kind, part.name, part.rss_bytes, part.pss_bytes].join("|"));
const numbers = (at, start) => at.$$eval(`[data-number^="${start} "]`, (list) => Object.fromEntries(list.map((node) => [node.dataset.number.split(" ").slice(1).join(" "), Number(node.dataset.value)])));
const BESIDE = ["time_ns", "rss_bytes", "pss_bytes", "parts_rss_bytes", "parts_pss_bytes", "swap_bytes", "page_table_bytes", "live_blocks", "requested_bytes", "usable_bytes"];

/** Every number of the tab is that of this instant. */
const shows = async (at, index, what) => {
  const instant = instants[index];
  equal((await table(at)).sort(), lines(instant).sort(), `${what}: parts`);
  const found = await numbers(at, "memory");
  equal(BESIDE.map((name) => [name, found[name]]), BESIDE.map((name) => [name, instant[name]]), `${what}: sums`);
  equal(found.parts, instant.parts.length, `${what}: the number of parts`);
  for (const name of ["cgroup_cache_bytes", "cgroup_limit_bytes"]) equal(found[name] ?? null, instant[name], `${what}: ${name}`);
  const legend = await numbers(at, "instant");
  equal(Object.keys(legend).sort(), [...kinds.map(({ kind }) => kind), "requested_bytes", "rss_bytes", "time_ns"].sort(), `${what}: the kinds of the legend`);
  for (const { kind, rss_bytes } of kinds) equal(legend[kind], rss_bytes[index], `${what}: ${kind}`);
};
const isAt = (at, index) => at.waitForFunction((ns) => new URLSearchParams(location.hash.split("?")[1]).get("at") === ns, String(time(index)));

await check("the engine's sums are those of its parts", async () => {
  holds(instants.length >= 4, `${instants.length} instants`);
  for (const [index, instant] of instants.entries()) {
    for (const of of ["rss_bytes", "pss_bytes"]) {
      const sum = instant.parts.reduce((all, part) => all + part[of], 0);
      equal([instant[`parts_${of}`], instant[of]], [sum, sum], `${of} at ${index}`);
      for (const kind of kinds) equal(kind[of][index], instant.parts.filter((part) => part.kind === kind.kind).reduce((all, part) => all + part[of], 0), `${kind.kind} at ${index}`);
    }
  }
  const few = print("memory", file, "--limit", "2");
  equal(few.instants.map(({ parts }) => parts.map(({ bytes }) => bytes)), instants.map(({ parts }) => parts.map(({ bytes }) => bytes).sort((a, b) => b - a).slice(0, 2)), "the two largest");
  equal([few.kinds, few.instants.map((one) => one.parts_rss_bytes)], [kinds, instants.map((one) => one.parts_rss_bytes)], "the sums of all");
});
await check("the Summary says how much of the highest RSS were live blocks, and leads to the tab", async () => {
  const blocks = kinds.find(({ kind }) => kind === "blocks").rss_bytes[highest];
  const line = page.locator(".memory-line");
  equal([await numbers(page, "memory"), await numbers(page, "highest")], [{ highest: instants[highest].rss_bytes }, { time_ns: time(highest), blocks, share: blocks / instants[highest].rss_bytes }], "the line");
  await line.getByRole("button").click();
  await page.waitForFunction(() => location.hash === "#/memory");
});
await check("without a selection the tab shows the instant of the highest RSS", async () => {
  await settled(page);
  await shows(page, highest, "highest");
  has(await page.locator(".parts").innerText(), "the highest RSS that was measured");
});
await check("a click selects an instant, which is in the address and can be undone", async () => {
  const plot = page.locator(".memory .plot");
  const box = await plot.boundingBox();
  // The axes leave 64 pixels on the left and 14 on the right. The first pixel of an instant's step is the instant.
  const end = Math.max(wanted.range.to_ns, time(instants.length - 1));
  const x = (index) => 64 + (time(index) / end) * (box.width - 78) + 1.5;
  for (const index of [1, 0]) {
    await plot.hover({ position: { x: x(index), y: 120 } });
    await settled(page);
    equal((await numbers(page, "instant")).time_ns, time(index), "the legend under the mouse");
    await plot.click({ position: { x: x(index), y: 120 } });
    await isAt(page, index);
    await settled(page);
    await shows(page, index, `click on ${index}`);
  }
  await page.goBack();
  await isAt(page, 1);
  await page.mouse.move(2, 2);
  await settled(page);
  await shows(page, 1, "undone");
  await page.goBack();
  await page.waitForFunction(() => location.hash === "#/memory");
});
await check("by keyboard: instants, the highest one, and the callers of live blocks", async () => {
  await page.locator(".memory .plot").focus();
  const last = instants.length - 1;
  for (const [key, index] of [["End", last], ["ArrowLeft", last - 1], ["ArrowLeft", last - 2], ["ArrowRight", last - 1], ["Home", 0], ["ArrowLeft", 0], ["h", highest]]) {
    await press(page, key);
    await isAt(page, index);
    await settled(page);
    await shows(page, index, key);
  }
  has(await page.locator(".said").innerText(), "RSS", "what is said to a screen reader");
  await press(page, "Enter");
  await page.waitForFunction((ns) => location.hash.startsWith("#/bottom-up") && location.hash.includes(`at=${ns}`), String(time(highest)));
  await page.goBack();
  await settled(page);
  await page.locator(".memory .plot").focus();
  await press(page, "Escape");
  await page.waitForFunction(() => !location.hash.includes("at="));
});
await check("a moment between two instants shows the earlier one; a range its highest; the time before the first says so", async () => {
  await go(page, `#/memory?at=${time(2) - 1}`);
  await shows(page, 1, "between");
  equal(print("memory", file, "--at", `${time(2) - 1}ns`).instants[0].time_ns, time(1), "the engine's");
  await go(page, `#/memory?from=${time(1)}&to=${time(2)}`);
  const range = print("memory", file, "--from", `${time(1)}ns`, "--to", `${time(2)}ns`);
  await shows(page, 1 + range.highest, "range");
  await go(page, `#/memory?at=${time(0) - 1}`);
  has(await page.locator(".memory").innerText(), "The parts of the memory were not measured before");
  equal(await page.locator('[aria-label="Parts of the memory"]').count(), 0, "no table");
  await go(page, "#/memory?at=peak");
  await shows(page, instants.findLastIndex(({ time_ns }) => time_ns <= wanted.totals.peak_time_ns), "peak");
});
await check("the table is sorted by any column, which is in the address", async () => {
  await go(page, "#/memory");
  const by = async (title, hash, of, isDown) => {
    await page.locator('[aria-label="Parts of the memory"]').getByRole("button", { name: title }).click();
    await page.waitForFunction((text) => location.hash === text, hash);
    await settled(page);
    const seen = (await table(page)).map((line) => of(line.split("|")));
    equal(seen, seen.slice().sort((a, b) => (typeof a === "number" ? a - b : a.localeCompare(b)) * (isDown ? -1 : 1)), hash);
  };
  equal((await table(page)).map((line) => Number(line.split("|")[2])), instants[highest].parts.map(({ bytes }) => bytes).sort((a, b) => b - a).slice(0, (await table(page)).length), "largest first");
  await by("PSS", "#/memory?order=pss_bytes", (cells) => Number(cells[3]), true);
  await by("PSS", "#/memory?order=pss_bytes&reversed=1", (cells) => Number(cells[3]), false);
  await by("Name", "#/memory?order=name", (cells) => cells[1], false);
  await page.goBack();
  await page.waitForFunction(() => location.hash.includes("reversed=1"));
  // By keyboard: the heads are above the first row.
  await page.locator('[aria-label="Parts of the memory"]').focus();
  await press(page, "Home", "ArrowUp", "ArrowRight", "Enter");
  await page.waitForFunction(() => location.hash === "#/memory?order=name");
});
await check("live blocks lead to the tree of that moment", async () => {
  await go(page, `#/memory?at=${time(1)}`);
  const callers = (kind) => page.locator('[aria-label="Parts of the memory"] .grid-row').filter({ hasText: kind }).locator(".callers").first();
  await callers("live blocks").click();
  await page.waitForFunction((hash) => location.hash === hash, `#/bottom-up?at=${time(1)}`);
  await settled(page);
  const { totals } = print("profile", file, "--at", `${time(1)}ns`);
  equal(await page.$eval('.figures [data-number="live_bytes"]', (node) => Number(node.dataset.value)), totals.live_bytes, "live bytes");
  // What the program mapped itself has callers, too.
  await go(page, `#/memory?at=${time(1)}`);
  await callers("mapped by the program").click();
  await page.waitForFunction((ns) => location.hash.startsWith("#/bottom-up") && location.hash.includes("domain=mapped") && location.hash.includes(`at=${ns}`), String(time(1)));
  await settled(page);
  const mapped = print("profile", file, "--domain", "mapped", "--at", `${time(1)}ns`).totals;
  equal(await page.$eval('.figures [data-number="live_bytes"]', (node) => Number(node.dataset.value)), mapped.live_bytes, "mapped bytes");
});
const cellAt = (at) => at.$eval(".map .status-line", (node) => (node.dataset.cell === undefined ? -1 : Number(node.dataset.cell)));
const readout = (at) => at.locator(".map .status-line").innerText();
/** Whether the line about a cell says what the engine says. */
const describes = async (at, map, index, what) => {
  equal(await cellAt(at), index, `${what}: the cell`);
  const { start, bytes } = map.cells[index];
  has(await readout(at), `${start.toString(16)}–${(start + bytes).toString(16)}`, what);
  const owner = map.owners[map.cells[index].owner];
  if (owner.name) has(await readout(at), owner.name, what);
  if (owner.function) has(await readout(at), `mostly of ${owner.function}`, what);
};
await check("the map shows every cell of the engine, by mouse and by keyboard", async () => {
  await go(page, "#/memory");
  const map = print("map", file);
  equal((await numbers(page, "map")).time_ns, map.time_ns, "the time of the map");
  equal(map.time_ns, time(highest), "it is that of the highest RSS");
  const strip = page.locator(".strip");
  await strip.focus();
  const last = map.cells.length - 1;
  for (const [key, index] of [["Home", 0], ["ArrowRight", 1], ["End", last], ["ArrowLeft", last - 1], ["PageUp", last - 21]]) {
    await press(page, key);
    await settled(page);
    await describes(page, map, index, key);
  }
  has(await page.locator(".said").innerText(), "resident", "what is said to a screen reader");
  // A click zooms to the region, so that its first cell is at the left end.
  await press(page, "Enter");
  await page.waitForFunction(() => location.hash.includes("mapTo="));
  const from = Number(new URLSearchParams((await page.evaluate(() => location.hash)).split("?")[1]).get("mapFrom"));
  const first = map.cells.findIndex(({ start }) => start >= from);
  const box = await strip.boundingBox();
  await strip.hover({ position: { x: 1, y: 40 } });
  await settled(page);
  await describes(page, map, first, "the left end");
  await page.getByRole("button", { name: "Zoom in" }).click();
  await page.waitForFunction((before) => !location.hash.includes(`mapFrom=${before}&`), from);
  await strip.focus();
  await press(page, "-");
  await press(page, "Escape");
  await page.waitForFunction(() => !location.hash.includes("mapTo="));
  // A drag selects a range.
  await page.mouse.move(box.x + box.width * 0.2, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.4, box.y + 40, { steps: 4 });
  await page.mouse.up();
  await page.waitForFunction(() => location.hash.includes("mapFrom=") && location.hash.includes("mapTo="));
  await page.getByRole("button", { name: "Whole map" }).click();
  await page.waitForFunction(() => !location.hash.includes("mapTo="));
});
await check("the colours of the map are in the address; a moment has the last map before it", async () => {
  const pixels = () => page.$eval(".strip canvas", (node) => node.toDataURL());
  const seen = [await pixels()];
  for (const paint of ["fill", "age"]) {
    await page.getByRole("group", { name: "Colour of the map" }).getByRole("button", { name: paint }).click();
    await page.waitForFunction((word) => location.hash === `#/memory?paint=${word}`, paint);
    await settled(page);
    seen.push(await pixels());
  }
  equal(new Set(seen).size, 3, "three pictures");
  await go(page, `#/memory?at=${Math.round(wanted.range.to_ns)}`);
  equal((await numbers(page, "map")).time_ns, print("map", file, "--at", "end").time_ns, "the map at the end");
  await go(page, `#/memory?at=${time(0) - 1}`);
  equal(await page.locator(".strip").count(), 0, "no map before the first");
});
await check("a report has the same instants and parts", async () => {
  const html = join(traces, "memory.html");
  execFileSync(bin, ["report", "--summary-only", file, "-o", html]);
  const own = await visit(pathToFileURL(html).href, "#/memory");
  await own.setViewportSize({ width: 1540, height: 2600 });
  await settled(own);
  await shows(own, highest, "report");
  equal((await numbers(own, "map")).time_ns, time(highest), "the map of a report");
  await own.locator(".memory .plot").focus();
  await press(own, "Home");
  await isAt(own, 0);
  await settled(own);
  await shows(own, 0, "report, first");
  await go(own, `#/memory?at=${time(2) - 1}`);
  await shows(own, 1, "report, between");
  await own.close();
});
await check("a trace without instants says so, and what to do", async () => {
  for (const number of [1, 2]) {
    await go(page, `#/memory?file=${number}`);
    equal(await page.locator(".memory").innerText(), "This trace has no parts of the resident memory; to see them, record a run of more than 50 ms with this version of heaptrack, and not with --memory-every off.", `trace ${number}`);
    await go(page, `#/summary?file=${number}`);
    equal(await page.locator(".memory-line").count(), 0, "no line in the Summary");
  }
});
await page.close();
server.child.kill();

// What the page adds to the features of KDE's GUI, as a list from B1 to B16. B13, the comparison, is in compare.mjs.
import { readFileSync } from "node:fs";
import { check, equal, go, has, holds, print, rows, serve, settled, trace, visit } from "./harness.mjs";

const server = await serve([trace("orders"), trace("base")]);
const page = await visit(server.url);
await settled(page);
const hash = () => page.evaluate(() => location.hash);
const text = (selector) => page.locator(selector).first().innerText();
const plot = () => page.locator(".timeline .plot").boundingBox();
const { range } = print("timeline", trace("orders"));
/** The x coordinate of a time in the timeline, as the page draws it. */
const xOf = async (ns) => {
  const box = await plot();
  return box.x + 64 + (ns / range.to_ns) * (box.width - 64 - 14);
};

await check("B1 brushing recomputes in place; Back and a link work", async () => {
  await go(page, "#/bottom-up");
  const before = await rows(page, "Bottom-up tree");
  const box = await plot();
  await page.mouse.move(await xOf(range.to_ns * 0.05), box.y + 60);
  await page.mouse.down();
  await page.mouse.move(await xOf(range.to_ns * 0.4), box.y + 60, { steps: 8 });
  await page.mouse.up();
  await settled(page);
  const state = new URLSearchParams((await hash()).split("?")[1]);
  const wanted = print("profile", trace("orders"), "--from", `${state.get("from")}ns`, "--to", `${state.get("to")}ns`);
  has(await text(".status-line"), wanted.totals.allocations.toLocaleString("en-US"), "all numbers are of the range");
  holds((await page.locator(".chip").count()) >= 1, "chips");
  const link = await page.evaluate(() => location.href);
  const other = await visit(link);
  await settled(other);
  equal(await rows(other, "Bottom-up tree"), await rows(page, "Bottom-up tree"), "a link shows the same");
  await other.close();
  await page.goBack();
  await settled(page);
  equal(await rows(page, "Bottom-up tree"), before, "Back");
});
await check("B2 a moment, two moments; live, growth and kept are told apart", async () => {
  await go(page, "#/bottom-up");
  await page.locator(".peak").click();
  await settled(page);
  has(await hash(), "at=peak");
  const peak = print("profile", trace("orders"), "--at", "peak");
  equal(peak.totals.live_bytes, print("summary", trace("orders")).totals.peak_bytes, "the peak is the peak");
  has(await text(".status-line"), "Live 32.2 MB");
  const box = await plot();
  await page.keyboard.down("Shift");
  await page.mouse.click(await xOf(range.to_ns * 0.97), box.y + 80);
  await page.keyboard.up("Shift");
  await settled(page);
  has(await hash(), "compare=%40peak");
  const blur = (await rows(page, "Bottom-up tree")).find((row) => row.text.includes("blur"));
  equal(blur.cells.live_bytes, "-15728640", "what went away between the two");
  await go(page, "#/bottom-up?from=1&to=200000000");
  const heads = (await page.locator(".grid-head .head").allInnerTexts()).join("|");
  for (const name of ["Peak in range", "Growth", "Kept"]) has(heads, name);
  holds(!heads.includes("Leaked"), "nothing is called leaked in a range");
});
await check("B3 names that can be read: short, full on demand, file and line, details to copy", async () => {
  await go(page, "#/bottom-up?levels=all");
  const short = await text(".grid-row .tree-name");
  holds(!short.includes("std::allocator<") && short.length < 60, short);
  has(await text(".grid-row .place"), ":");
  await page.getByLabel("full names").check();
  await settled(page);
  holds((await text(".grid-row .tree-name")).length > short.length, "the full name");
  await page.locator(".grid-row").first().click();
  await settled(page);
  holds((await page.locator(".full-name").innerText()).length > 10, "details");
  const selectable = await page.locator(".detail").evaluate((node) => getComputedStyle(node).userSelect);
  holds(selectable !== "none", "details can be selected");
  await page.keyboard.press("Escape");
});
await check("B4 my code: decode and blur are two names, in trees and bands", async () => {
  await go(page, "#/bottom-up");
  const names = (await rows(page, "Bottom-up tree")).slice(0, 2).map((row) => row.cells.name);
  holds(names.some((name) => name.includes("decode")) && names.some((name) => name.includes("blur")), names.join());
  has(await text(".timeline .legend"), "img::Pipeline::decode");
  has(await text(".timeline .legend"), "img::Pipeline::blur");
  await page.keyboard.press("m");
  await settled(page);
  has((await rows(page, "Bottom-up tree"))[0].text, "std::", "all code");
  await go(page, "#/bottom-up?levels=all");
  await page.locator('[aria-label="Bottom-up tree"]').focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  await settled(page);
  const chain = await rows(page, "Bottom-up tree");
  holds(chain.filter((row) => row.level > 2).length >= 2, "a chain of only children opens as one");
});
await check("B5 churn: lifetimes, rates", async () => {
  await go(page, "#/lifetimes");
  const wanted = print("lifetimes", trace("orders"));
  const short = wanted.deallocations.reduce((sum, count, at) => (wanted.to[at] < 131072 ? sum + count : sum), 0);
  has(await page.locator(".bars tr").first().getByRole("button").getAttribute("aria-label"), "blocks of");
  holds(short > 430_000, "nearly all die young");
  await go(page, "#/allocations");
  has(await text(".chart .card-head"), "per second");
  has(await text(".chart .legend"), "frees");
  await page.getByRole("button", { name: "cumulative" }).click();
  await settled(page);
  has(await text(".chart .card-head"), "since the start");
});
await check("B6 leaks: counts, ratio, verdicts, a reason, suppress", async () => {
  await go(page, "#/leaks");
  const site = (await rows(page, "Leaks")).find((row) => row.text.includes("makeToken"));
  has(site.text, "grows");
  has(site.text, "8,000 of 8,000");
  has(site.text, "100 %");
  const kept = (await rows(page, "Leaks")).find((row) => row.text.includes("openSession"));
  has(kept.text, "800 of 8,000");
  has(kept.text, "10 %");
  await page.locator(".grid-row", { hasText: "makeToken" }).click();
  await settled(page);
  holds((await page.locator(".reason").innerText()).length > 20, "a reason");
  await page.getByRole("button", { name: "Suppress this…" }).click();
  await page.waitForFunction(() => document.querySelector(".said")?.textContent?.includes("leak:"));
  equal(await page.evaluate(() => navigator.clipboard.readText()), "leak:leaky::makeToken\n", "an LSan line");
});
await check("B7 more measures in a tree, and of each stack", async () => {
  await go(page, "#/top-down");
  await page.getByRole("button", { name: "Columns" }).click();
  const offered = await page.locator(".column-list").innerText();
  for (const name of ["Allocated", "Frees", "Average size", "Mean life", "Blocks at peak", "% kept"]) has(offered, name);
  await page.keyboard.press("Escape");
  has((await page.locator(".grid-head .head").allInnerTexts()).join("|"), "Self: Peak");
  await page.locator(".grid-row").first().click();
  await settled(page);
  has(await page.locator(".stacks").innerText(), "own peak");
  has(await page.locator(".stacks").innerText(), "largest block");
  await page.keyboard.press("Escape");
});
await check("B8 filters recompute: include, exclude, regex, thread, size, lifetime", async () => {
  for (const [words, options] of [
    ["include=/make(Token|Nothing)/", ["--include", "/make(Token|Nothing)/"]],
    ["exclude=function:formatRow", ["--exclude", "function:formatRow"]],
    ["thread=1", ["--thread", "1"]],
    ["size=64..127", ["--size", "64..127"]],
    ["lifetime=1000000..", ["--lifetime", "1000000ns.."]],
  ]) {
    await go(page, `#/bottom-up?${words}`);
    const { totals } = print("profile", trace("orders"), ...options);
    has(await text(".status-line"), `Allocations ${totals.allocations.toLocaleString("en-US")}`, words);
  }
  await go(page, "#/bottom-up");
  await page.locator(".grid-row", { hasText: "leaky::makeToken" }).click();
  await page.locator('[aria-label="Bottom-up tree"]').focus();
  await page.keyboard.press("ArrowRight");
  await settled(page);
  const open = (await rows(page, "Bottom-up tree")).length;
  await go(page, "#/bottom-up?include=leaky");
  await go(page, "#/bottom-up");
  equal((await rows(page, "Bottom-up tree")).length, open, "what is expanded stays so");
  await page.keyboard.press("Escape");
});
await check("B9 the stacks of a selection are a list by cost", async () => {
  await go(page, "#/top-down?levels=all&cost=allocations&sort=allocations");
  await page.locator(".grid-row", { hasText: "_start" }).first().click();
  await settled(page);
  const counts = (await page.locator(".stacks > li summary b").allInnerTexts()).map((one) => Number(one.replace(/,/g, "")));
  holds(counts.length > 3 && counts.every((count, at) => at === 0 || counts[at - 1] >= count), counts.join());
  await page.keyboard.press("Escape");
});
await check("B10 flame graph: owners' colours, both ways up, in ranges and diffs, SVG; options keep the zoom", async () => {
  await go(page, "#/flame?levels=all");
  has(await text(".flame ~ .legend"), "your code");
  const paper = await page.locator(".flame-paper canvas").boundingBox();
  const colour = (x, y) => page.locator(".flame-paper canvas").evaluate((canvas, [px, py]) => [...canvas.getContext("2d").getImageData(px * devicePixelRatio, py * devicePixelRatio, 1, 1).data].slice(0, 3), [x, y]);
  const [own, library] = [await colour(600, 5 * 22 + 3), await colour(600, 7 * 22 + 3)];
  holds(own[0] > own[2] + 60 && Math.abs(library[0] - library[2]) < 60, `${own} ${library}`);
  await page.mouse.click(paper.x + 30, paper.y + 5 * 22 + 8);
  await page.waitForFunction(() => location.hash.includes("zoom="));
  await page.getByLabel("icicle").uncheck();
  await settled(page);
  has(await hash(), "zoom=");
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "SVG" }).click()]);
  has(readFileSync(await file.path(), "utf8"), "img::Pipeline::");
  await go(page, "#/flame?from=1&to=200000000&cost=allocations");
  has(await text(".flame-text"), "allocations in total");
  await go(page, "#/flame?at=peak&compare=@1000");
  has(await text(".flame ~ .legend"), "more than in the base");
});
await check("B11 charts: bands add up, log, zoom without a filter, RSS, lanes", async () => {
  const answer = print("timeline", trace("orders"));
  for (const what of ["live_bytes", "allocations", "temporary"]) {
    answer[what].forEach((total, at) => {
      const sum = answer.bands.reduce((all, band) => all + band[what][at], answer.other[what][at]);
      equal(sum, total, `${what} in slice ${at}`);
    });
  }
  for (const view of ["allocations", "temporary"]) {
    await go(page, `#/${view}`);
    const [first] = print("timeline", trace("orders"), "--cost", view).bands;
    has(await text(".chart .legend"), first.function.replace(/\(.*/, ""), `${view}: bands are those that have most of them`);
  }
  await go(page, "#/consumed?chart=rss&log=1");
  has(await text(".chart .legend"), "RSS");
  const box = await plot();
  await page.mouse.move(box.x + box.width / 2, box.y + 50);
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -300);
  await page.keyboard.up("Control");
  await page.waitForFunction(() => location.hash.includes("zoomFrom="));
  holds(!(await hash()).includes("&from="), "no filter");
  await page.getByRole("button", { name: "Zoom out" }).click();
  await page.locator(".timeline").getByRole("button", { name: "threads" }).click();
  await settled(page);
  equal(await page.locator(".timeline .legend-entry").count(), 3, "three threads, three lanes");
  await go(page, "#/consumed");
});
await check("B12 sizes: as many bars in a range as print has buckets, four measures, a click filters to the right blocks", async () => {
  await go(page, "#/sizes?from=1&to=300000000");
  const wanted = print("sizes", trace("orders"), "--from", "1ns", "--to", "300000000ns");
  const shown = await page.locator(".bars tr td:nth-child(3)").allInnerTexts();
  // Blocks that were allocated before the range and are live in it have a bucket too, but no bar among the allocations.
  const used = wanted.allocations.map((calls, index) => (calls > 0 ? index : -1)).filter((index) => index >= 0);
  equal(shown.length, used.at(-1) - used[0] + 1, "buckets in the range");
  for (const name of ["bytes", "at the peak", "live at end"]) await page.getByRole("button", { name, exact: true }).click();
  await go(page, "#/sizes");
  await page.locator(".bars tr", { hasText: "262.1 kB" }).getByRole("button").click();
  await settled(page);
  has(await hash(), "size=262144..524287");
  has(await text(".figures"), "120");
});
await check("B14 source with costs per line", async () => {
  await go(page, "#/source");
  await page.waitForSelector(".listing pre");
  const wanted = print("source", trace("orders")).files.find((one) => one.file.endsWith("orders.cpp"));
  const line = wanted.lines.reduce((best, one) => (one.inclusive.peak_bytes > best.inclusive.peak_bytes && one.self !== undefined ? one : best));
  const row = page.locator(".listing tr", { has: page.locator(`td.line-number:text-is("${line.line}")`) });
  has(await row.innerText(), "MB");
  has(await page.locator(".listing").innerText(), "struct Pipeline");
  holds((await page.locator("a.editor").first().getAttribute("href")).startsWith("vscode://"), "edit");
});
await check("B15 exports, dark and light, help in place", async () => {
  await go(page, "#/bottom-up");
  for (const [item, part] of [
    ["Functions as CSV", "function,file,line,module,peak_bytes"],
    ["Stacks as JSON", '"stacks"'],
    ["Folded stacks", "main;"],
  ]) {
    await page.getByRole("button", { name: "Export" }).click();
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: item }).click()]);
    has(readFileSync(await file.path(), "utf8"), part, item);
  }
  const paper = () => page.evaluate(() => getComputedStyle(document.documentElement).getPropertyValue("--paper").trim());
  const light = await paper();
  await page.getByRole("button", { name: /^Colours/ }).click();
  await page.getByRole("button", { name: /^Colours/ }).click();
  holds((await paper()) !== light, "dark");
  await page.getByRole("button", { name: /^Colours/ }).click();
  await page.getByRole("button", { name: "Help" }).click();
  has(await page.locator("dialog").innerText(), "a leak");
  await page.keyboard.press("Escape");
});
await check("B16 bars of different lengths, units in powers of 1000, numbers to the right", async () => {
  await go(page, "#/callers?fn=main");
  const rest = await page.locator('[aria-label="Callees of main"] .grid-row .heat').evaluateAll((list) => list.map((one) => one.style.width));
  holds(new Set(rest).size > 2, `bars differ: ${rest}`);
  const align = await page.locator(".grid-row .cell.number").first().evaluate((node) => getComputedStyle(node).textAlign);
  equal(align, "right", "numbers");
  holds(!/[KM]iB/.test(await page.locator(".figures").innerText()), "powers of 1000");
});
server.child.kill();

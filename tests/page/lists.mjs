// Everything that KDE's GUI can do, as a list from A1 to A19.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, equal, go, has, holds, press, print, rows, serve, settled, shots, trace, traces, visit } from "./harness.mjs";

const server = await serve([trace("orders"), trace("base")]);
const page = await visit(server.url);
await settled(page);
const text = (selector) => page.locator(selector).first().innerText();
const section = (label) => page.locator(`section[aria-label="${label}"]`).first();

await check("A1 command, runtime, system memory", async () => {
  const summary = print("summary", trace("orders"));
  has(await text(".command"), "orders");
  has(await text(".facts"), `pid ${summary.pid}`);
  has(await text(".facts"), "0 lost");
  holds(/ · [\d.]+ m?s · /.test(await text(".facts")), await text(".facts"));
  has(await text(".figures"), "system memory");
});
await check("A2 allocations and temporary, with rates and shares", async () => {
  const { totals } = print("summary", trace("orders"));
  const card = page.locator(".figure-card", { hasText: "Allocations" });
  has(await card.getAttribute("title"), totals.allocations.toLocaleString("en-US"));
  has(await card.innerText(), "/s");
  const short = page.locator(".figure-card", { hasText: "Short-lived" });
  has(await short.getAttribute("title"), totals.temporary.toLocaleString("en-US"));
  has(await short.innerText(), `${Math.round((totals.temporary / totals.allocations) * 100)} %`);
});
await check("A3 peak, leaked, RSS", async () => {
  const { totals } = print("summary", trace("orders"));
  has(await page.locator(".figure-card", { hasText: "Peak heap" }).getAttribute("title"), totals.peak_bytes.toLocaleString("en-US"));
  has(await page.locator(".figure-card", { hasText: "Leaked" }).getAttribute("title"), totals.leaked_bytes.toLocaleString("en-US"));
  has(await page.locator(".figure-card", { hasText: "Peak RSS" }).innerText(), "MB");
});
await check("A4 four lists, from 1 %, with bars; details with percent and stack", async () => {
  for (const title of ["Held at the peak", "Not freed: leak or not?", "Most allocations", "Temporary"]) {
    const list = section(title);
    const shares = (await list.locator(".entry-share").allInnerTexts()).map((share) => Number.parseFloat(share));
    holds(shares.length > 0 && shares.every((share) => share >= 1), `${title}: ${shares}`);
    holds((await list.locator(".bar i").count()) === shares.length, "a bar each");
  }
  await section("Held at the peak").locator(".entry").first().click();
  await settled(page);
  const detail = page.locator(".detail");
  has(await detail.innerText(), "15.7 MB");
  has(await detail.innerText(), "49 %");
  has(await detail.locator(".frames").first().innerText(), "main");
  await page.keyboard.press("Escape");
});
await check("A5 suppressions table", async () => {
  const file = join(traces, "supp.txt");
  writeFileSync(file, "# known\nleak:makeToken\nleak:nothing_like_this\n");
  const other = await serve([trace("orders")], "--suppressions", file);
  const own = await visit(other.url);
  await settled(own);
  const table = own.locator(".suppressions table");
  has(await table.innerText(), "makeToken");
  has(await table.innerText(), "440.0 kB");
  has(await own.locator(".figure-card", { hasText: "Leaked" }).innerText(), "440.0 kB suppressed");
  await own.close();
  other.child.kill();
});
for (const direction of ["bottom-up", "top-down"]) {
  const label = direction === "bottom-up" ? "Bottom-up tree" : "Top-down tree";
  await check(`A6 ${direction}: columns, sort, expand, show, hide, move, reset`, async () => {
    await go(page, `#/${direction}?levels=all`);
    const before = await rows(page, label);
    for (const column of ["peak_bytes", "leaked_bytes", "allocations", "temporary"]) holds(column in before[0].cells, column);
    const sorted = (list, column) => list.every((row, at) => at === 0 || Number(list[at - 1].cells[column]) >= Number(row.cells[column]));
    holds(sorted(before.filter((row) => row.level === 1), "peak_bytes"), "opens sorted by peak");
    await page.locator(".head-button", { hasText: "Allocations" }).first().click();
    await settled(page);
    const byCalls = (await rows(page, label)).filter((row) => row.level === 1);
    holds(sorted(byCalls, "allocations"), "sorted by allocations");
    await page.locator(`[aria-label="${label}"]`).focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("*");
    await settled(page);
    const all = await rows(page, label);
    holds(all.length > byCalls.length && all.some((row) => row.level > 2), "a subtree is expanded");
    await page.locator(".tools").getByRole("button", { name: "Collapse" }).click();
    await settled(page);
    equal((await rows(page, label)).length, byCalls.length, "collapsed");
    await page.getByRole("button", { name: "Columns" }).click();
    await page.getByLabel("Mean life", { exact: true }).check();
    await page.getByLabel("Leaked", { exact: true }).uncheck();
    await page.getByLabel("Temporary: to the left").click();
    const heads = await page.locator(".grid-head .head").allInnerTexts();
    has(heads.join("|"), "Mean life");
    holds(!heads.join("|").includes("Leaked"), `hidden: ${heads}`);
    holds(heads.findIndex((head) => head.startsWith("Temporary")) < heads.findIndex((head) => head.startsWith("Allocations")), `moved: ${heads}`);
    await page.getByRole("button", { name: "Reset" }).click();
    holds(!(await page.locator(".grid-head .head").allInnerTexts()).join("|").includes("Mean life"), "reset");
    await page.keyboard.press("Escape");
    const head = page.locator(".grid-head .head").nth(1);
    const wide = (await head.boundingBox()).width;
    const sizer = await head.locator(".sizer").boundingBox();
    await page.mouse.move(sizer.x + 3, sizer.y + 5);
    await page.mouse.down();
    await page.mouse.move(sizer.x + 63, sizer.y + 5);
    await page.mouse.up();
    holds((await head.boundingBox()).width > wide + 30, "resized");
    has(await head.getAttribute("title"), "Bytes held", "column help");
    await head.locator(".sizer").dblclick();
  });
}
await check("A7 filters by function, file and module", async () => {
  await go(page, "#/bottom-up?include=function:makeToken");
  equal((await rows(page, "Bottom-up tree")).map((row) => row.cells.allocations), ["8000"], "function");
  await go(page, "#/bottom-up?include=file:orders.cpp&levels=mine");
  holds((await rows(page, "Bottom-up tree")).every((row) => row.text.includes("orders.cpp")), "file");
  await go(page, "#/bottom-up?include=module:no-such-module");
  equal((await rows(page, "Bottom-up tree")).length, 0, "module");
  has(await page.locator(".grid .empty").innerText(), "Remove a filter");
  await go(page, "#/bottom-up");
  await page.locator(".filter select").first().selectOption("function");
  await page.locator(".filter input").first().fill("blur");
  await page.waitForFunction(() => location.hash.includes("function%3Ablur"));
  await settled(page);
  equal((await rows(page, "Bottom-up tree")).map((row) => row.cells.peak_bytes), ["15728640"], "typed");
  has(await page.locator(".grid-row mark").first().innerText(), "blur", "the match is marked");
  await page.locator(".chip-x").last().click();
});
await check("A8 all stacks of a selection, to browse and copy", async () => {
  await go(page, "#/top-down?levels=all");
  await page.locator(".grid-row").first().click();
  await settled(page);
  const count = Number((await page.locator(".detail h3").innerText()).split(" ")[0].replace(/,/g, ""));
  const flat = print("profile", trace("orders")).stack.length;
  holds(count > 1 && count <= flat, `${count} stacks`);
  await page.locator(".detail").getByRole("button", { name: "Copy" }).click();
  has(await page.evaluate(() => navigator.clipboard.readText()), "allocations, peak");
  await page.keyboard.press("Escape");
});
await check("A9 from any row to its callers and callees", async () => {
  await go(page, "#/bottom-up");
  await page.locator(".grid-row", { hasText: "img::Pipeline::blur" }).first().dblclick();
  await page.waitForFunction(() => location.hash.startsWith("#/callers"));
  await settled(page);
  has(await page.locator(".subject").innerText(), "img::Pipeline::blur");
});
await check("A10 functions inclusive and self; callers, callees, lines; go on by a click", async () => {
  await go(page, "#/callers?fn=main()&levels=mine".replace("main()", "main"));
  const all = await rows(page, "Functions, inclusive and self");
  holds("peak_bytes" in all[0].cells && "self peak_bytes" in all[0].cells, "both");
  const callees = await rows(page, "Callees of main");
  has(callees.map((row) => row.text).join(), "img::Pipeline::decode");
  holds((await rows(page, "Lines of main")).length > 1, "lines");
  await page.locator('[aria-label="Callees of main"] .grid-row', { hasText: "blur" }).dblclick();
  await settled(page);
  has(await page.locator(".subject").innerText(), "img::Pipeline::blur");
  equal((await rows(page, "Callers of img::Pipeline::blur")).length, 1, "callers");
});
await check("A11 open in an editor: presets and a custom command", async () => {
  const link = page.locator('[aria-label="Lines of img::Pipeline::blur"] a.editor').first();
  holds(/^vscode:\/\/file\/.*orders\.cpp:\d+:1$/.test(await link.getAttribute("href")), await link.getAttribute("href"));
  await page.getByRole("button", { name: "Open…" }).click();
  await page.getByLabel("open sources with").selectOption("custom");
  await page.locator(".sheet input[type=text]").fill("myeditor +%l %f %c");
  has(await page.locator(".sheet .hint code").innerText(), "myeditor +42 /src/main.cpp 1");
  await page.getByLabel("open sources with").selectOption("vscode");
  await page.keyboard.press("Escape");
});
await check("A12 flame graph: costs, directions, recursion, threshold, search, zoom, history, copy", async () => {
  await go(page, "#/flame?levels=all");
  const options = await page.locator(".tools select").first().locator("option").allInnerTexts();
  equal(options, ["Peak", "Leaked", "Allocations", "Temporary", "Allocated"], "costs");
  has(await text(".flame-text"), "32.2 MB at the peak");
  const paper = await page.locator(".flame-paper canvas").boundingBox();
  await page.mouse.move(paper.x + 30, paper.y + 5 * 22 + 8);
  has(await text(".flame-text"), "img::Pipeline::");
  has(await text(".flame-text"), "49 % of the total");
  await page.mouse.click(paper.x + 30, paper.y + 5 * 22 + 8);
  await page.waitForFunction(() => location.hash.includes("zoom="));
  await page.evaluate(() => history.back());
  await page.waitForFunction(() => !location.hash.includes("zoom="));
  await page.evaluate(() => history.forward());
  await page.waitForFunction(() => location.hash.includes("zoom="));
  await page.getByRole("button", { name: "Reset" }).click();
  await page.waitForFunction(() => !location.hash.includes("zoom="));
  await page.getByLabel("Search in the flame graph").fill("blur");
  await page.waitForSelector(".found");
  has(await text(".found"), "15.7 MB (49 % of 32.2 MB) match the search");
  await page.getByRole("button", { name: "bottom-up", exact: true }).click();
  await settled(page);
  has(await page.evaluate(() => location.hash), "up=1");
  await page.getByLabel("collapse recursion").uncheck();
  await page.locator('input[type=number]').first().fill("2");
  await page.keyboard.press("Tab");
  await settled(page);
  has(await page.evaluate(() => location.hash), "threshold=2");
  await page.locator(".flame-paper").focus();
  await page.keyboard.press("ArrowDown");
  await page.locator(".flame-line").getByRole("button", { name: "Copy" }).click();
  has(await page.evaluate(() => navigator.clipboard.readText()), "of the total");
  await page.locator(".flame-line").getByRole("button", { name: "Callers" }).click();
  await page.waitForFunction(() => location.hash.startsWith("#/callers"));
});
await check("A13 three charts: bands, legend, total, details, export", async () => {
  for (const [view, title] of [["consumed", "Memory consumed"], ["allocations", "Allocations"], ["temporary", "Temporary allocations"]]) {
    await go(page, `#/${view}`);
    has(await page.locator(".chart h2").innerText(), title);
    holds((await page.locator(".chart .legend-entry").count()) > 1, "legend");
  }
  await page.locator(".tools").getByLabel("legend").uncheck();
  equal(await page.locator(".chart .legend-entry").count(), 0, "no legend");
  await page.locator(".tools").getByLabel("legend").check();
  await page.locator(".chart").getByLabel("bands").fill("2");
  await page.keyboard.press("Tab");
  await settled(page);
  holds((await page.locator(".chart .legend-entry").count()) <= 4, "two bands and the rest");
  await page.locator(".chart").getByLabel("by function").uncheck();
  await page.locator(".chart").getByLabel("total").uncheck();
  for (const form of ["SVG", "PNG"]) {
    const [file] = await Promise.all([page.waitForEvent("download"), page.locator(".chart").getByRole("button", { name: form }).click()]);
    const bytes = readFileSync(await file.path());
    holds(form === "SVG" ? bytes.toString().startsWith("<svg") : bytes.subarray(1, 4).toString() === "PNG", form);
  }
});
await check("A14 cursor read-out, range with start, end and delta", async () => {
  await go(page, "#/summary");
  const plot = await page.locator(".timeline .plot").boundingBox();
  await page.mouse.move(plot.x + plot.width / 2, plot.y + 60);
  has(await text(".timeline .legend-entry.read"), "total");
  await page.mouse.down();
  await page.mouse.move(plot.x + plot.width * 0.7, plot.y + 60, { steps: 4 });
  const table = await text(".delta");
  for (const word of ["start", "end", "delta", "time", "live"]) has(table, word);
  await page.mouse.up();
  await settled(page);
});
await check("A15 everything is filtered to the range; reset", async () => {
  has(await page.evaluate(() => location.hash), "from=");
  has(await text(".figures"), "Peak in range");
  has(await text(".top"), "range ");
  await go(page, (await page.evaluate(() => location.hash)).replace("summary", "bottom-up"));
  has((await page.locator(".grid-head .head").allInnerTexts()).join("|"), "Growth");
  await page.getByRole("button", { name: "clear all" }).click();
  await settled(page);
  holds(!(await page.evaluate(() => location.hash)).includes("from="), "reset");
});
await check("A16 sizes: bars by function, with count, total and average", async () => {
  await go(page, "#/sizes");
  const bar = page.locator(".bars tr", { hasText: "262.1 kB" }).getByRole("button");
  has(await bar.getAttribute("aria-label"), "120 allocations, 31.5 MB in total, 262.1 kB each");
  holds((await page.locator(".bars tr", { hasText: "32 – 63 B" }).locator("i").count()) >= 2, "stacked by function");
});
await check("A17 several files, open, suppressions, switched off again", async () => {
  await page.getByRole("button", { name: "Open…" }).click();
  const names = await page.locator(".traces").innerText();
  for (const name of ["orders.htz", "base.htz", "python.htz", "node.htz"]) has(names, name);
  await page.locator(".traces").getByRole("button", { name: "base.htz" }).click();
  await page.waitForFunction(() => location.hash.includes("file=1"));
  await page.waitForFunction(() => document.querySelector(".command")?.textContent?.includes(" 6"));
  await page.goBack();
  await settled(page);
  await page.getByRole("button", { name: "Open…" }).click();
  await page.locator('input[type=file]').setInputFiles({ name: "s.txt", mimeType: "text/plain", buffer: Buffer.from("leak:openSession\n") });
  await page.waitForFunction(() => document.querySelector(".said")?.textContent?.includes("1 suppression added."));
  await page.locator(".figure-card", { hasText: "166.4 kB suppressed" }).waitFor();
  await go(page, "#/summary?suppressions=0");
  holds(!(await page.locator(".figure-card", { hasText: "Leaked" }).innerText()).includes("suppressed"), "switched off");
});
await check("A18 a diff in summary, trees and caller/callee", async () => {
  await go(page, "#/summary?compare=1&cost=leaked_bytes");
  await page.waitForSelector(".diff .grid-row");
  const row = (await rows(page, "Changes by function")).find((one) => one.text.includes("img::Pipeline") || one.text.includes("makeToken"));
  holds(row !== undefined, "changed functions");
  await go(page, "#/bottom-up?compare=1&cost=leaked_bytes&sort=leaked_bytes&suppressions=0");
  const tokens = (await rows(page, "Bottom-up tree")).find((one) => one.text.includes("makeToken"));
  equal(tokens.cells.leaked_bytes, "110000", "2000 tokens more");
  await go(page, "#/callers?compare=1&fn=main");
  holds((await rows(page, "Functions, inclusive and self")).length > 3, "functions");
});
await check("A19 keyboard, panes, remembered layout", async () => {
  await go(page, "#/summary");
  await page.locator("body").click({ position: { x: 5, y: 5 } });
  await page.keyboard.press("3");
  await page.waitForFunction(() => location.hash.startsWith("#/bottom-up"));
  await settled(page);
  await page.locator('[aria-label="Bottom-up tree"]').focus();
  await press(page, "ArrowDown", "Enter");
  await page.waitForFunction(() => location.hash.startsWith("#/callers"));
  await settled(page);
  const pane = page.locator(".pane");
  const tall = (await pane.boundingBox()).height;
  await page.locator(".splitter").first().focus();
  await press(page, "ArrowDown", "ArrowDown");
  holds((await pane.boundingBox()).height > tall + 30, "resized by keyboard");
  await page.reload();
  await page.waitForSelector(".pane");
  holds((await page.locator(".pane").boundingBox()).height > tall + 30, "remembered");
  await page.keyboard.press("?");
  has(await page.locator("dialog").innerText(), "Alt + ← →");
  await page.keyboard.press("Escape");
});
void shots;
server.child.kill();

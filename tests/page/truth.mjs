// One screen has no contradictions: a value that is shown in two places is the same number, and nothing is left from an earlier question.
//
// The traces are of tests/targets/screens.c, whose header comment has the numbers. A number at the beginning of a check's name only groups checks of the same
// kind of contradiction. Some numbers are not used.
import { check, equal, go, has, holds, print, rows, serve, settled, trace, visit } from "./harness.mjs";

const server = await serve([trace("screens"), trace("screens-before")]);
const page = await visit(server.url);
await settled(page);
const text = (selector) => page.locator(selector).first().innerText();
const card = (name) => page.locator(".figure-card", { hasText: name }).first();
const section = (label) => page.locator(`section[aria-label="${label}"]`).first();
const { range, totals } = print("summary", trace("screens"));
/** The x coordinate of a time in the timeline, as the page draws it. */
const xOf = async (ns) => {
  const box = await page.locator(".timeline .plot").boundingBox();
  return box.x + 64 + (ns / range.to_ns) * (box.width - 64 - 14);
};
const away = () => page.mouse.move(2, 2);
const detail = () => page.locator(".detail");
/** The text of a cost in the details. */
const detailOf = async (cost, column = 1) => (await detail().locator("tr", { has: page.getByRole("rowheader", { name: cost, exact: true }) }).locator("td").allInnerTexts())[column - 1];
const shares = async (selector) => (await page.locator(selector).allInnerTexts()).map((share) => Number.parseFloat(share.replace("−", "-"))).filter(Number.isFinite);

await check("1 at a chosen moment the cards, the lists and the legend have the same numbers", async () => {
  const answer = print("timeline", trace("screens"), "--points", "256");
  // A slice whose peak was higher than its value at the end, because flicker's block of 300,000 bytes is gone by then.
  const slice = answer.live_bytes.findIndex((bytes, at) => bytes - answer.live_bytes_end[at] === 300_000);
  holds(slice > 0, "a slice with a flicker");
  const at = answer.time_ns[slice];
  const moment = print("profile", trace("screens"), "--at", `${at}ns`).totals.live_bytes;
  const written = (bytes) => (bytes >= 1e6 ? `${(bytes / 1e6).toFixed(2)} MB` : `${(bytes / 1e3).toFixed(1)} kB`);
  for (const view of ["summary", "consumed"]) {
    await go(page, `#/${view}?at=${at}`);
    await away();
    await settled(page);
    has(await text(".figures"), written(moment), "card");
    has(await text(".timeline .legend"), written(moment), "the legend says so without the mouse");
    const box = await page.locator(".timeline .plot").boundingBox();
    await page.mouse.move(await xOf(at), box.y + 60);
    await settled(page);
    has(await text(".timeline .legend .read"), written(moment), "and with the mouse where it was clicked");
    if (view === "consumed") continue;
    const cache = await section("Live at this moment").locator(".entry", { hasText: "cache" }).locator(".entry-value").innerText();
    equal(await page.locator(".timeline .legend-entry", { hasText: "cache" }).locator("b").innerText(), cache, "cache in the legend and in the list");
  }
  await away();
});
await check("3 leaks are those of the whole session, whatever range or moment is chosen", async () => {
  await go(page, "#/leaks");
  const all = await rows(page, "Leaks");
  for (const time of ["at=60000000", "from=40000000&to=80000000", "at=peak"]) {
    await go(page, `#/leaks?${time}`);
    equal(await rows(page, "Leaks"), all, time);
    has(await text('section[aria-label="Leaks"]'), "about the whole session", time);
    await page.locator('[aria-label="Leaks"] .grid-row', { hasText: "token" }).click();
    await settled(page);
    equal(await detailOf("Leaked"), "64.0 kB", "details too");
    await page.keyboard.press("Escape");
  }
});
await check("4 verdicts are explained as in the documents, and places that freed everything at exit are not listed as not freed", async () => {
  await go(page, "#/summary");
  const judged = section("Not freed: leak or not?");
  const sites = print("leaks", trace("screens")).sites;
  const live = sites.filter((site) => site.live_allocations > 0).length;
  holds(live < sites.length, "something was freed at exit");
  has(await judged.locator(".card-head").innerText(), `all ${live}`);
  await go(page, "#/leaks");
  equal((await rows(page, "Leaks")).length, live, "the same number of rows there");
  const help = (name) => page.getByRole("group", { name: "Verdict" }).getByRole("button", { name: new RegExp(`^${name}`) }).getAttribute("title");
  has(await help("freed at exit"), "freed only when the program ended");
  has(await help("in use at end"), "In use when the program ended; earlier blocks were freed");
  await page.getByRole("group", { name: "Verdict" }).getByRole("button", { name: /^freed at exit/ }).click();
  await settled(page);
  const [exit] = await rows(page, "Leaks");
  has(exit.text, "until_exit");
  holds(!/(^|\s)0 s/.test(exit.text), `what is not known is not 0: ${exit.text}`);
});
await check("5 details follow every change: filters, all code, excluded functions", async () => {
  await go(page, "#/bottom-up?levels=mine");
  await page.locator(".grid-row", { hasText: "token" }).click();
  await settled(page);
  equal(await detailOf("Allocations"), "1,000", "at first");
  for (const [hash, wanted] of [
    ["#/bottom-up?levels=mine&include=function:first_way", "500"],
    ["#/bottom-up?levels=all", "1,000"],
    ["#/top-down?levels=all&exclude=function:second_way", "500"],
  ]) {
    await go(page, hash);
    equal(await detailOf("Allocations"), wanted, hash);
    const found = await shares(".detail .costs td:last-child");
    holds(found.every((share) => share >= 0 && share <= 100), `${hash}: ${found}`);
  }
  await go(page, "#/bottom-up?levels=mine");
  await detail().getByRole("button", { name: "Exclude" }).click();
  await settled(page);
  holds(!/1,000/.test(await detail().innerText()), "nothing of what is left out");
  await page.keyboard.press("Escape");
});
await check("5 a row of Leaks, its details and the Summary have the same numbers", async () => {
  await go(page, "#/leaks");
  const row = (await rows(page, "Leaks")).find((one) => one.text.includes("token"));
  has(row.text, "1,000 of 1,000");
  has(row.text, "64.0 kB");
  await page.locator('[aria-label="Leaks"] .grid-row', { hasText: "token" }).click();
  await settled(page);
  equal([await detailOf("Leaked"), await detailOf("Leaked blocks")], ["64.0 kB", "1,000"], "both ways to it");
  has(await detail().locator("h3").innerText(), "2 stacks");
  await page.keyboard.press("Escape");
  await go(page, "#/summary");
  await section("Not freed: leak or not?").locator(".entry", { hasText: "token" }).click();
  await settled(page);
  equal([await detailOf("Leaked"), await detailOf("Leaked blocks")], ["64.0 kB", "1,000"], "from the Summary");
  await page.keyboard.press("Escape");
});
await check("5 views that cannot compare say so; the Summary and the details show both sides of a comparison", async () => {
  for (const view of ["leaks", "sizes", "lifetimes", "threads", "source", "consumed", "allocations", "temporary"]) {
    await go(page, `#/${view}?compare=1`);
    has(await text("#view"), "cannot compare", view);
  }
  await go(page, "#/summary?compare=1");
  const rss = (name) => print("summary", trace(name)).peak_rss_bytes;
  equal(await card("Peak RSS").locator("[data-number='peak_rss_bytes change']").getAttribute("data-value"), String(rss("screens") - rss("screens-before")), "the RSS is a difference, too");
  has(await section("Never freed").locator(".entry", { hasText: "token" }).innerText(), "800 → 1,000 blocks");
  await page.locator('[aria-label="Changes by function"] .grid-row', { hasText: "token" }).click();
  await settled(page);
  equal([await detailOf("Allocations", 1), await detailOf("Allocations", 2), await detailOf("Allocations", 3)], ["800", "1,000", "+200"], "details of a change");
  await page.keyboard.press("Escape");
});
await check("11 under a filter the peak is called the process's, and the own peak of the filtered blocks is marked, too", async () => {
  const worker = print("threads", trace("screens")).threads.find((one) => one.costs.allocated_bytes === 270_000);
  await go(page, `#/summary?thread=${worker.index}`);
  has(await text(".timeline .peak"), "the process's peak");
  const { own_peak: own, totals: filtered } = print("timeline", trace("screens"), "--thread", String(worker.index));
  equal([filtered.peak_bytes, own.bytes], [0, 250_040], "25 blocks of 10,000 bytes and one of 40; nothing of it at the peak");
  has(await text(".timeline .own-peak"), "own peak 250.0 kB");
  has(await text(".figures"), "At the process's peak");
  await go(page, "#/summary?lifetime=..1000000");
  has(await text(".timeline .peak"), "the process's peak");
  holds((await page.locator(".own-peak [data-value]").getAttribute("data-value")) !== "0", "its own is not 0");
  await go(page, "#/summary");
  has(await text(".timeline .peak"), "peak 2.21 MB at");
});
/** The colours of the legend entries and of the bars in Sizes, by the name next to each. */
const coloursOf = (where) =>
  where.$$eval(".legend-entry[title] > i, .bars i[title]", (list) =>
    list.map((one) => [one.title ? one.title.replace(/: .*/s, "") : one.parentElement.title, one.style.background]).filter(([name]) => !["other", "all", "freed", "still live"].includes(name)),
  );
const haveOneColour = async (where, addresses, colours) => {
  for (const address of addresses) {
    await go(where, address);
    const found = await coloursOf(where);
    holds(found.length > 0, `${address} has colours`);
    for (const [name, colour] of found) equal(colours.get(name) ?? colour, colour, `${address}: ${name}`);
    for (const [name, colour] of found) colours.set(name, colour);
  }
};
await check("12 a function has one colour in every view, whichever is opened first; sizes have a legend", async () => {
  const colours = new Map();
  for (const views of [["sizes", "consumed", "allocations", "summary"], ["temporary", "allocations", "sizes", "summary?from=1&to=40000000", "summary?thread=1"]]) {
    await page.goto("about:blank");
    await page.goto(server.url + `#/${views[0]}`);
    await page.waitForSelector(".legend-entry");
    await haveOneColour(page, views.map((view) => `#/${view}`), colours);
  }
  await go(page, "#/sizes");
  holds((await page.locator(".view .legend .legend-entry").count()) > 3, "sizes have a legend");
});
await check("12 units: the bounds of sizes are in powers of 1000, and small ones are written in full", async () => {
  await go(page, "#/sizes");
  const labels = await page.locator(".bars th").allInnerTexts();
  holds(labels.every((label) => !/[KMG]iB/.test(label)), labels.join());
  has(labels.join("|"), "64 – 127 B");
  has(labels.join("|"), "262.1 kB – 524.3 kB");
});
await check("14 a bad regular expression marks the box and changes nothing else", async () => {
  await go(page, "#/bottom-up?include=/tok(en|yo)/");
  const before = await rows(page, "Bottom-up tree");
  holds(before.length > 0, "rows");
  await page.locator(".filter input").first().fill("/tok(/");
  await page.waitForTimeout(400);
  await settled(page);
  equal(await rows(page, "Bottom-up tree"), before, "the last result");
  equal(await page.locator(".filter input").first().getAttribute("aria-invalid"), "true", "marked");
  equal(await page.locator(".problem").count(), 0, "nothing else");
  await page.locator(".filter input").first().fill("/toke?n/");
  await page.waitForFunction(() => location.hash.includes("toke"));
  await settled(page);
  equal(await page.locator(".filter input").first().getAttribute("aria-invalid"), "false", "a good one");
  await page.getByRole("button", { name: "+ filter" }).click();
  await page.getByLabel("Text or /regular expression/").fill("/(/");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.waitForSelector(".sheet .problem");
  holds(!decodeURIComponent(await page.evaluate(() => location.hash)).includes("/(/"), "not in the address");
  await page.keyboard.press("Escape");
  page.problems.length = 0;
});
await check("15 a new function that is gone before the peak is among what changed, and both files are named", async () => {
  await go(page, "#/summary?compare=1");
  const changed = await rows(page, "Changes by function");
  holds(!changed.some((row) => row.cells.name.includes("burst")), "it did not change at the peak");
  const burst = (await rows(page, "Changes in other measures")).find((row) => row.cells.name === "burst");
  holds(burst !== undefined, "it is listed");
  equal([burst.cells.before, burst.cells.after], ["0", "800000"], `its ${burst.cells.measure}`);
  const head = await text(".diff .card-head");
  has(head, "screens-before.htz → screens.htz");
});
await check("17 a mean of nothing is shown as a dash", async () => {
  await go(page, "#/bottom-up?levels=mine");
  await page.locator(".grid-row", { hasText: "cache" }).click();
  await settled(page);
  equal(await detailOf("Mean life"), "–", "nothing of it was freed");
  await page.keyboard.press("Escape");
  await page.locator(".grid-row", { hasText: "worker" }).first().click();
  await settled(page);
  holds((await detailOf("Mean life")) !== "–", "some of it was");
  await page.keyboard.press("Escape");
});
await check("20 no number and no title of a table is cut off", async () => {
  const cut = () =>
    page.$$eval(".head-button, .grid-row .cell.number, .figure, .bars .number, .costs td", (list) =>
      list.filter((one) => one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1).map((one) => `${one.innerText} (${one.scrollWidth} > ${one.clientWidth})`),
    );
  for (const hash of ["bottom-up", "top-down", "bottom-up?from=1&to=90000000", "top-down?from=1&to=90000000", "bottom-up?compare=1", "callers?compare=1&fn=main", "callers?from=1&to=90000000&fn=main", "leaks", "threads?from=1&to=90000000", "summary?compare=1"]) {
    await go(page, `#/${hash}`);
    equal(await cut(), [], hash);
  }
});
await check("growth has no shares: one function may grow by more than all together", async () => {
  await go(page, `#/bottom-up?from=${totals.peak_time_ns}&to=${range.to_ns}`);
  const cells = await page.locator('[data-column="growth_bytes"]').allInnerTexts();
  holds(cells.some((cell) => cell.includes("−2.00 MB")), `hump is freed: ${cells}`);
  holds(cells.every((cell) => !cell.includes("%")), cells.join());
});
await check("the lines of a function are compared as the function is", async () => {
  await go(page, "#/callers?compare=1&fn=token&cost=allocations&levels=mine");
  const [line] = await rows(page, "Lines of token");
  equal(line.cells.allocations, "200", "1,000 and 800 before");
});
await check("a timeline that is zoomed calls only the session's peak the peak", async () => {
  await go(page, "#/summary?zoomFrom=1000000&zoomTo=20000000");
  equal(await page.locator(".timeline .peak").count(), 0, "it is not in sight");
  const border = Math.round(totals.peak_time_ns / 1e6) * 1_000_000;
  await go(page, `#/summary?zoomFrom=${border - 5_000_000}&zoomTo=${border + 5_000_000}&lifetime=5000000..`);
  const wanted = print("profile", trace("screens"), "--lifetime", "5000000ns..").totals.peak_bytes;
  equal(await page.locator(".timeline .peak span").getAttribute("data-value"), String(wanted), "the filter means the same blocks");
});
await check("in a range, the cost in the source view is called Peak in range", async () => {
  await go(page, "#/source?from=1&to=60000000");
  await page.waitForSelector(".listing th");
  equal(await page.locator(".listing th").first().innerText(), "Peak in range", "column");
});
await check("sums below a table are those of the moment after a change from a range, whatever columns were chosen", async () => {
  const own = await visit(server.url);
  const range = ["peak_bytes", "growth_bytes", "live_bytes", "allocations", "temporary"];
  await own.evaluate((shape) => localStorage.setItem("heaptrack.shape.top-down", shape), JSON.stringify({ range }));
  await own.reload();
  const { live_bytes, live_allocations } = print("summary", trace("screens"), "--at", "peak").totals;
  for (const _ of [1, 2]) {
    await go(own, "#/top-down?from=41000000&to=448000000");
    await go(own, "#/top-down?at=peak");
    const sums = await own.$$eval(".status-line [data-number]", (list) => Object.fromEntries(list.map((one) => [one.dataset.number, Number(one.dataset.value)])));
    equal([sums.live_bytes, sums.live_allocations], [live_bytes, live_allocations], "what was live at the peak");
  }
  equal(own.problems, [], "errors");
  await own.evaluate(() => localStorage.removeItem("heaptrack.shape.top-down"));
  await own.close();
});
await check("an answer that arrives after a newer one does not replace the rows", async () => {
  const late = "from=41000000&to=448000000";
  for (const [view, label] of [["bottom-up", "Bottom-up tree"], ["callers", "Functions, inclusive and self"]]) {
    const own = await visit(server.url, `#/${view}?levels=all`);
    await settled(own);
    const wanted = await rows(own, label);
    // The worker has the costs of the whole session already, so it answers about them while it waits for those of the range.
    let hold;
    const held = new Promise((done) => {
      hold = done;
    });
    await own.route(`**/api/profile?*${late}*`, hold);
    const show = (hash) =>
      own.evaluate((address) => {
        location.hash = address;
      }, hash);
    await show(`#/${view}?levels=all&${late}`);
    const route = await held;
    await show(`#/${view}?levels=all`);
    await own.waitForFunction(() => !document.querySelector(".busy"));
    await route.continue();
    await settled(own);
    // A table that becomes higher asks for more rows.
    const setHeight = (style) => own.$eval(`[aria-label="${label}"]`, (grid, one) => Object.assign(grid.style, one), style);
    await setHeight({ height: "30px", minHeight: "0", flex: "none" });
    await own.waitForFunction(([name, all]) => document.querySelectorAll(`[aria-label="${name}"] .grid-row`).length < all, [label, wanted.length]);
    await setHeight({ height: "", minHeight: "", flex: "" });
    await own.waitForFunction(([name, all]) => document.querySelectorAll(`[aria-label="${name}"] .grid-row`).length === all, [label, wanted.length]);
    equal(await rows(own, label), wanted, view);
    await own.close();
  }
});
await page.close();
server.child.kill();

const many = await serve([trace("compiler"), trace("orders")]);
const large = await visit(many.url);
await settled(large);
await check("20 the counts and differences of a large program are whole, with their shares", async () => {
  for (const hash of ["bottom-up", "top-down?compare=1", "bottom-up?compare=1", "threads"]) {
    await go(large, `#/${hash}`);
    const cut = await large.$$eval(".head-button, .grid-row .cell.number, .figure", (list) => list.filter((one) => one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1).map((one) => one.innerText));
    equal(cut, [], hash);
  }
});
await check("12 a function with a long name has one colour, too", async () => {
  await haveOneColour(large, ["consumed", "sizes", "allocations", "temporary"].map((view) => `#/${view}?file=1`), new Map());
});
await check("a row that stands for a namespace has its name, not that of one of its functions", async () => {
  await go(large, "#/bottom-up?file=1&merge=namespace&levels=mine");
  const names = (await rows(large, "Bottom-up tree")).map((row) => row.cells.name.split("\t")[0]);
  for (const name of ["img::Pipeline", "db::Cache", "leaky", "report"]) holds(names.includes(name), `${name} is not in ${names}`);
});
await large.close();
many.child.kill();

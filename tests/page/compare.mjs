// The comparison of two traces or of several runs (B13 of the list in better.mjs). The numbers are compared with those of `print`.
import { readFileSync } from "node:fs";
import { check, equal, go, has, holds, print, rows, serve, settled, trace, visit } from "./harness.mjs";

const server = await serve([trace("orders"), trace("base")]);
const page = await visit(server.url);
await settled(page);
const hash = () => page.evaluate(() => location.hash);
const text = (selector) => page.locator(selector).first().innerText();
/** The number of a trace in the folder of the open traces. The server loads it only when the page requests it. */
const run = (await page.evaluate(async () => (await fetch("/api/status?trace=0")).json())).beside.find(({ name }) => name === "longer.htz").index;
const near = (found, wanted, what) => {
  equal(found.length, wanted.length, `${what}: rows`);
  found.flat().forEach((number, index) => holds(Math.abs(number - wanted.flat()[index]) <= 1e-9 * Math.abs(number), `${what}: ${found} is not ${wanted}`));
};

await check("B13 diff of two traces: before, after and change are those of the command line", async () => {
  await go(page, "#/summary?compare=1&cost=leaked_bytes");
  await page.waitForSelector(".diff .grid-row");
  await settled(page);
  const found = await rows(page, "Changes by function");
  const wanted = print("diff", trace("orders"), "--diff", trace("base"), "--cost", "leaked").functions.filter((one) => one.delta !== 0);
  equal(found.map((row) => [Number(row.cells.before), Number(row.cells.after), Number(row.cells.delta)]), wanted.map((one) => [one.before, one.after, one.delta]), "before, after, delta");
});
await check("a wrapper that was found in one of two traces has the owners of print in both", async () => {
  const changes = (...words) => print("diff", trace("users"), "--diff", trace("users-before"), "--cost", "peak", ...words).functions.filter((one) => one.delta !== 0);
  equal(changes().map((one) => one.short), ["user_11", "user_10", "user_9"], "only the new callers differ");
  const pair = await serve([trace("users"), trace("users-before")]);
  const other = await visit(pair.url);
  try {
    for (const words of [[], ["--wrapper", "unknown"], ["--not-wrapper", "pool_get"], ["--wrapper", "pool_get"]]) {
      const asked = words.length > 0 ? `&${words[0].slice(2)}=${words[1]}` : "";
      await go(other, `#/summary?compare=1${asked}`);
      await other.waitForSelector(".diff .grid-row");
      await settled(other);
      const entries = other.getByRole("region", { name: "Held at the peak" }).locator('[data-number="entry peak_bytes"]');
      const found = await entries.evaluateAll((all) => all.map((one) => Number(one.dataset.value)));
      equal(found, changes(...words).map((one) => one.delta), words.join(" ") || "no words");
    }
  } finally {
    await other.close();
  }
});
await check("B13 runs that are not alike: the base per second, per allocation, as a share", async () => {
  const of = (name) => {
    const { totals, range } = print("profile", trace(name));
    return { second: (range.to_ns - range.from_ns) / 1e9, allocation: totals.allocations / 1000, share: totals.allocated_bytes };
  };
  const [now, base] = [of("orders"), of("base")];
  const changes = print("diff", trace("orders"), "--diff", trace("base"), "--cost", "allocated").functions;
  for (const how of ["second", "allocation", "share"]) {
    await go(page, `#/summary?compare=1&cost=allocated_bytes&normalise=${how}`);
    const found = (await rows(page, "Changes by function")).map(({ cells }) => [Number(cells.before), Number(cells.after), Number(cells.delta)]);
    const wanted = changes.map(({ before, after }) => [before / base[how], after / now[how], after / now[how] - before / base[how]]);
    near(found, wanted.sort((a, b) => Math.abs(b[2]) - Math.abs(a[2])), how);
  }
  has(await text(".figures"), "0 B", "as a share of the total, the totals are equal");
  await page.locator(".diff select").first().selectOption("as recorded");
  await settled(page);
  holds(!(await hash()).includes("normalise"), "as recorded");
});
await check("B13 several runs against one base", async () => {
  await go(page, "#/summary?compare=1&cost=leaked_bytes");
  await page.getByRole("button", { name: "Compare…" }).click();
  await page.getByLabel("longer.htz").check();
  await page.keyboard.press("Escape");
  await page.waitForSelector('[data-column="after 1"]');
  await settled(page);
  has(await hash(), `runs=${run}`);
  const seen = (await rows(page, "Changes by function")).map(({ cells }) => [Number(cells.before), Number(cells["after 0"]), Number(cells["after 1"]), Number(cells.delta), cells.agree]);
  const of = (name) => new Map(print("diff", trace(name), "--diff", trace("base"), "--cost", "leaked").functions.map((one) => [one.function, one]));
  const [first, second] = [of("orders"), of("longer")];
  const names = [...new Set([...first.keys(), ...second.keys()])];
  const wanted = names.map((name) => {
    const before = (first.get(name) ?? second.get(name)).before;
    const after = [first, second].map((one) => one.get(name)?.after ?? 0);
    const agree = Math.sign(after[0] - before) === Math.sign(after[1] - before) ? "yes" : "no";
    return [before, ...after, (after[0] + after[1]) / 2 - before, agree];
  });
  const changed = wanted.filter(([before, ...after]) => after.slice(0, 2).some((amount) => amount !== before));
  equal(seen, changed.sort((a, b) => Math.abs(b[3]) - Math.abs(a[3])), "before, both after, mean change, agreement");
  await go(page, "#/summary");
});
const LINES = ".timeline .legend-entry:has(svg)";
/** The lines of the timeline's legend: name, dashes, colour. */
const legend = () => page.$$eval(LINES, (list) => list.map((one) => ({ name: one.querySelector(".legend-name").textContent, dash: one.querySelector("line").getAttribute("stroke-dasharray"), colour: one.querySelector("line").getAttribute("stroke") })));
const RUNS = `#/summary?compare=1&runs=${run}`;
await check("B13 timeline: a line for the base and for every run, told apart without colour, in light and dark", async () => {
  await go(page, RUNS);
  await page.mouse.move(2, 2);
  const found = await legend();
  const ends = (name) => print("timeline", trace(name)).range.to_ns;
  equal(found.map(({ name }) => name.split(",")[0]), ["base.htz (base)", "longer.htz"], "names");
  equal(found.map(({ name }) => name.includes("continues to")), ["base", "longer"].map((name) => ends(name) > ends("orders")), "which ones are longer");
  holds(found.every(({ dash }) => dash) && new Set(found.map(({ dash }) => dash)).size === 2, "each has dashes of its own");
  const drawn = (colour) =>
    page.locator(".timeline canvas").evaluate((canvas, wanted) => {
      const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(wanted.slice(at, at + 2), 16));
      const { data } = canvas.getContext("2d").getImageData(70 * devicePixelRatio, 0, canvas.width - 90 * devicePixelRatio, canvas.height - 25 * devicePixelRatio);
      let count = 0;
      for (let at = 0; at < data.length; at += 4) if (Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue) < 12) count += 1;
      return count;
    }, colour);
  for (const theme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: theme });
    await page.reload();
    await settled(page);
    const lines = await legend();
    holds(lines[0].colour !== lines[1].colour, "two colours");
    // The last line is on top. The runs are similar, so it may cover the base.
    holds((await drawn(lines[1].colour)) > 50, `${theme}: ${lines[1].name} is drawn`);
    await go(page, "#/summary?compare=1");
    const [base] = await legend();
    equal(base, lines[0], `${theme}: the base looks the same without runs`);
    holds((await drawn(base.colour)) > 50, `${theme}: ${base.name} is drawn`);
    await go(page, RUNS);
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.reload();
  await settled(page);
  const label = await page.locator(".timeline canvas").getAttribute("aria-label");
  for (const name of ["base.htz (base)", "longer.htz"]) has(label, `${name}`, "a label for screen readers");
  has(label, "at most", "with its highest value");
});
/** The values that the legend shows for each line at a time. */
const read = async (ns) => {
  const box = await page.locator(".timeline .plot").boundingBox();
  const { to_ns } = print("timeline", trace("orders")).range;
  await page.mouse.move(box.x + 64 + (ns / to_ns) * (box.width - 64 - 14), box.y + 80);
  await settled(page);
  return page.$$eval(`${LINES} b`, (list) => list.map((one) => (one.dataset.value === undefined ? one.textContent : Number(one.dataset.value))));
};
await check("B13 timeline: the lines have the other traces' own values, scaled as the comparison is", async () => {
  const of = (name) => print("timeline", trace(name), "--points", "256", "--top", "0");
  const [here, base, longer] = ["orders", "base", "longer"].map(of);
  // `at` is a time that is further from every border of a slice than the precision of the mouse.
  const pixel = here.range.to_ns / ((await page.locator(".timeline .plot").boundingBox()).width - 64 - 14);
  const isClear = (time) => [base, longer].every((one) => one.time_ns.every((border) => Math.abs(border - time) > 0.7 * pixel));
  const end = Math.min(here.range.to_ns, base.range.to_ns, longer.range.to_ns);
  let at = Math.round(end * 0.6);
  while (!isClear(at) && at < end) at += Math.ceil(pixel / 7);
  const slice = (one) => one.time_ns.findIndex((border) => border > at);
  const rate = (one) => (one.allocations[slice(one)] / (one.time_ns[slice(one)] - (one.time_ns[slice(one) - 1] ?? 0))) * 1e9;
  const length = ({ range }) => range.to_ns - range.from_ns;
  const scales = {
    live: { no: () => 1, second: length, allocation: ({ totals }) => totals.allocations, share: ({ totals }) => totals.peak_bytes },
    rate: { no: () => 1, second: () => 1, allocation: ({ totals }) => totals.allocations, share: ({ totals }) => totals.allocations },
  };
  for (const [chart, ways] of Object.entries(scales)) {
    for (const [how, scale] of Object.entries(ways)) {
      await go(page, `${RUNS}&chart=${chart}&normalise=${how}`);
      const wanted = [base, longer].map((one) => ((chart === "live" ? one.live_bytes[slice(one)] : rate(one)) * scale(here)) / scale(one));
      const found = (await read(at)).slice(-2);
      found.forEach((value, index) => holds(Math.abs(value - wanted[index]) <= 1e-6 * wanted[index], `${chart}, ${how}: ${found} is not ${wanted}`));
      const names = (await legend()).slice(-2).map(({ name }) => name);
      names.forEach((name, index) => equal(name.includes("×"), scale(here) !== scale([base, longer][index]), `${chart}, ${how}: ${name}`));
    }
  }
});
await page.close();
server.child.kill();

const all = await serve([trace("orders"), trace("base"), trace("compiler"), trace("python"), trace("node")]);
const many = await visit(all.url);
await settled(many);
/** Compares the number of rows and the visible rows with the changes that `print` lists. */
const compare = async (hash, options, what) => {
  await go(many, `#/summary?${hash}`);
  const table = many.locator('[aria-label="Changes by function"]');
  const wanted = print("diff", ...options).functions.filter((one) => one.delta !== 0);
  // The page has the first 2000 rows and a header row.
  equal(Number(await table.getAttribute("aria-rowcount")) - 1, Math.min(2000, wanted.length), `${what}: changes`);
  const found = (await rows(many, "Changes by function")).map(({ cells }) => [Number(cells.before), Number(cells.after)]);
  holds(found.length > 0, `${what}: something changed`);
  equal(found.map(([before, after]) => Math.abs(after - before)), wanted.slice(0, found.length).map(({ delta }) => Math.abs(delta)), `${what}: in order`);
  for (const [before, after] of found) holds(wanted.some((one) => one.before === before && one.after === after), `${what}: ${before} to ${after}`);
};
const LEVELS = { mine: ["--hide", "all-but-mine"], all: [] };
await check("B13 any two traces, any range, any two moments: the changes are print's", async () => {
  const names = ["orders", "base", "compiler", "python", "node"];
  const file = (number, base) => [trace(names[number]), "--diff", trace(names[base])];
  for (const [levels, hide] of Object.entries(LEVELS)) {
    const same = ["--by", "function", ...hide];
    for (const [number, base] of [[2, 3], [3, 4], [4, 3], [0, 1]]) {
      for (const [cost, word] of [["allocations", "allocations"], ["allocated_bytes", "allocated"]]) {
        await compare(`file=${number}&compare=${base}&levels=${levels}&cost=${cost}`, [...file(number, base), ...same, "--cost", word], `${names[number]} and ${names[base]}, ${levels}, ${cost}`);
      }
    }
    await compare(`file=3&compare=4&levels=${levels}&cost=allocations&from=1000000&to=30000000`, [...file(3, 4), ...same, "--cost", "allocations", "--from", "1000000ns", "--to", "30000000ns"], `a range, ${levels}`);
    await compare(`compare=@50000000&at=peak&levels=${levels}&cost=live_bytes`, [trace("orders"), "--compare", "@50000000ns", "--at", "peak", ...same, "--cost", "live"], `two moments, ${levels}`);
    await compare(`file=3&compare=@1000000&at=peak&levels=${levels}&cost=live_bytes`, [trace("python"), "--compare", "@1000000ns", "--at", "peak", ...same, "--cost", "live"], `two moments of another, ${levels}`);
  }
});
await many.close();
all.child.kill();

const twins = await serve([trace("twins"), trace("twins-before"), trace("twins-again")]);
const pair = await visit(twins.url);
await settled(pair);
const DIFF = [trace("twins"), "--diff", trace("twins-before"), "--by", "function"];
const numbers = ({ cells }) => [cells.name, Number(cells.before), Number(cells.after)];
const sorted = (list) => list.map((one) => JSON.stringify(one)).sort();
const changed = (cost, ...hide) =>
  print("diff", ...DIFF, "--cost", cost, ...hide)
    .functions.filter((one) => one.delta !== 0)
    .map((one) => [one.function, one.before, one.after]);
await check("B13 functions of one name in several files: the list is print's", async () => {
  for (const [levels, hide] of [["mine", ["--hide", "all-but-mine"]], ["all", []]]) {
    for (const [cost, word] of [["leaked_bytes", "leaked"], ["peak_bytes", "peak"], ["allocations", "allocations"], ["allocated_bytes", "allocated"]]) {
      await go(pair, `#/summary?compare=1&cost=${cost}&levels=${levels}`);
      const found = (await rows(pair, "Changes by function")).map(numbers);
      equal(sorted(found), sorted(changed(word, ...hide)), `${levels}, ${cost}`);
    }
  }
  await go(pair, "#/summary?compare=1&cost=leaked_bytes&levels=mine");
  const made = (await rows(pair, "Changes by function")).filter(({ cells }) => cells.name === "make").map((row) => [row.text.match(/(\w+\.c)/)[1], ...numbers(row).slice(1)]);
  equal(made, [["blue.c", 7000, 4000], ["red.c", 300, 500], ["green.c", 0, 100]], "the three of that name");
});
await check("B13 functions of one name in several files: trees, callers and flame graph keep them apart", async () => {
  const wanted = [["bare", 13], ["grow", -210], ["grow", 60], ["keep", 9], ["leave", -200], ["arrive", 205], ["make", -3000], ["make", 100], ["make", 200]];
  await go(pair, "#/bottom-up?compare=1&cost=leaked_bytes&levels=mine");
  const found = (await rows(pair, "Bottom-up tree")).filter(({ level }) => level === 1).map(({ cells }) => [cells.name.split("\t")[0], Number(cells.leaked_bytes)]);
  equal(sorted(found), sorted(wanted), "bottom-up");
  await go(pair, "#/top-down?compare=1&cost=leaked_bytes&levels=mine");
  await pair.locator('[aria-label="Top-down tree"]').focus();
  await pair.keyboard.press("Home");
  await pair.keyboard.press("*");
  await settled(pair);
  const below = (await rows(pair, "Top-down tree")).map(({ cells, level }) => [level, cells.name.split("\t")[0], Number(cells.leaked_bytes)]);
  equal(below.slice(0, 2), [[1, "main", -2823], [2, "run", -2823]], "their callers are the same");
  equal(sorted(below.slice(2).map(([, name, delta]) => [name, delta])), sorted(wanted), "top-down: siblings");
  await go(pair, "#/flame?compare=1&cost=allocations&levels=mine&threshold=0");
  const [file] = await Promise.all([pair.waitForEvent("download"), pair.getByRole("button", { name: "SVG" }).click()]);
  const svg = readFileSync(await file.path(), "utf8");
  equal(svg.match(/>make[^<]*<\/text>/g)?.length, 3, "boxes");
  // The boxes of `make` are 7 (blue.c), 5 (red.c) and 4 (green.c) allocations wide. The gap of one pixel after a box is part of its width.
  const widths = [...svg.matchAll(/<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)"[^>]*\/><text [^>]*>make/g)].map((match) => Number(match[1]) + 1);
  equal(widths.map((width) => Math.round((7 * width) / widths[0])), [7, 5, 4], "as wide as the larger of both");
  await go(pair, "#/summary?compare=1&cost=leaked_bytes&levels=mine");
  const red = pair.locator('[aria-label="Changes by function"] .grid-row', { hasText: "red.c" });
  await red.dblclick();
  await settled(pair);
  has(await pair.locator(".subject").innerText(), "make", "callers and callees of one of them");
  const lines = await pair.locator('[aria-label="Lines of make"] .grid-row').allInnerTexts();
  holds(lines.length > 0 && lines.every((line) => line.includes("red.c")), `of the right one: ${lines}`);
});
await check("B13 functions of one name in several files: what the base does not have is one row in all runs", async () => {
  await go(pair, "#/summary?compare=1&runs=2&cost=leaked_bytes&levels=mine");
  const found = (await rows(pair, "Changes by function")).map(({ cells }) => [cells.name, Number(cells.before), Number(cells["after 0"]), Number(cells["after 1"])]);
  equal(sorted(found), sorted(changed("leaked", "--hide", "all-but-mine").map(([name, before, after]) => [name, before, after, after])), "the same program, built a third time elsewhere");
});
await pair.close();
twins.child.kill();

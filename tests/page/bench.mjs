// Measures the page and prints a table with each value beside its limit. It does not fail if a value exceeds its limit. Run it as `node bench.mjs FOLDER`,
// with the path of heaptrack in HEAPTRACK_BIN. FOLDER must contain demo.htz, python.htz, compiler.htz and large.htz.
//
// Chromium is already running and has shown the page once, so its own start is not measured. Everything from the start of `heaptrack analyze` on is measured.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { longestFrame } from "./frames.mjs";
import { browser, serve, settled } from "./harness.mjs";

const ROUNDS = 3;
const folder = process.argv[2] ?? ".";
const table = [];
const row = (what, trace, bound, measured) => table.push(`| ${what} | ${trace} | ${bound} | ${measured} |`);
const ms = (time) => `${time < 10 ? time.toFixed(1) : Math.round(time)} ms`;
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

/** True if the figures, the timeline and all four lists show their numbers. */
const isDrawn = () => {
  const lists = [...document.querySelectorAll(".summary .list")];
  const isFull = (list) => list.querySelector(".entry, .empty") !== null;
  return document.querySelectorAll(".figure").length >= 6 && document.querySelector(".timeline canvas") !== null && lists.length === 4 && lists.every(isFull);
};

const open = async (name) => {
  const page = await (await browser()).newPage();
  page.setDefaultTimeout(60_000);
  const started = performance.now();
  const server = await serve([join(folder, `${name}.htz`)]);
  await page.goto(server.url);
  await page.waitForFunction(isDrawn);
  return { page, server, time: performance.now() - started };
};
const close = async ({ page, server }) => {
  await page.close();
  server.child.kill();
};
const show = async (page, hash) => {
  await page.evaluate((address) => {
    location.hash = address;
  }, hash);
  await settled(page);
};
const statusOf = async (page) => (await page.evaluate(async () => (await fetch("/api/status?trace=0")).json())).traces[0].session;
const millions = (count) => `${(count / 1e6).toFixed(1)} M events`;

const opening = async (name, bound) => {
  const times = [];
  let said;
  for (let round = 0; round < ROUNDS; round++) {
    const opened = await open(name);
    times.push(opened.time);
    said = `${name}, ${millions((await statusOf(opened.page)).events)}`;
    await close(opened);
  }
  row("opened: from the command's start to numbers drawn", said, bound, ms(median(times)));
};

/** Measures the time from the change of the range to its numbers on the screen. */
const brushing = async ({ page }, name, bound) => {
  const { runtime_ns: length, events } = await statusOf(page);
  await show(page, "#/bottom-up");
  const times = [];
  for (let turn = 0; turn < 15; turn++) {
    // The ranges have different lengths. If a program does the same all the time, ranges of equal length have the same numbers.
    const range = [0.05 + turn * 0.011, 0.5 + turn * 0.029].map((share) => Math.round(length * share));
    times.push(
      await page.evaluate(async ([from, to]) => {
        // Both elements show exact numbers, which differ from range to range.
        const shown = () => [document.querySelector(".figures")?.children[2]?.title, document.querySelector(".status-line")?.textContent];
        const before = shown();
        const start = performance.now();
        location.hash = `#/bottom-up?from=${from}&to=${to}`;
        do await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        while (shown().some((text, index) => text === before[index]) && performance.now() - start < 10_000);
        return performance.now() - start;
      }, range),
    );
    // Histograms are requested once a range has not changed for a while. They are not part of this measurement.
    await settled(page);
  }
  // If two consecutive ranges have the same numbers, the wait times out, and that measurement is dropped.
  const told = times.filter((time) => time < 10_000);
  row("a range: from the brush to its numbers drawn, median (worst)", `${name}, ${millions(events)}`, bound, `${ms(median(told))} (${ms(Math.max(...told))})`);
};

const tree = async ({ page }, name, direction, bound) => {
  const label = direction === "top-down" ? "Top-down tree" : "Bottom-up tree";
  const grid = page.locator(`[aria-label="${label}"]`);
  await show(page, `#/${direction}?levels=all`);
  const expanded = await longestFrame(page, async () => {
    await grid.focus();
    await page.keyboard.press("Home");
    for (let turn = 0; turn < 3; turn++) {
      await page.keyboard.press("*");
      await settled(page);
      await page.keyboard.press("End");
      await settled(page);
    }
  });
  const rows = Number(await grid.getAttribute("aria-rowcount"));
  const scrolled = await longestFrame(page, () =>
    grid.evaluate(async (node) => {
      // Read once, because reading it makes the browser lay out the page in the middle of a script.
      const height = node.scrollHeight;
      for (let turn = 0; turn < 60; turn++) {
        node.scrollTop = (height * ((turn * 7) % 60)) / 60;
        await new Promise((done) => requestAnimationFrame(done));
      }
    }),
  );
  row(`${direction} tree: script in the longest frame, expanding / scrolling`, `${name}, ${rows.toLocaleString("en")} rows`, bound, `${ms(expanded)} / ${ms(scrolled)}`);
};

const flame = async ({ page }, name, bound) => {
  await show(page, "#/flame?levels=all&threshold=0");
  const most = await longestFrame(page, async () => {
    const box = await page.locator(".flame-paper canvas").boundingBox();
    for (let depth = 3; depth < 12; depth += 3) {
      await page.mouse.move(box.x + 200 + depth * 20, box.y + depth * 22 + 8, { steps: 5 });
      await page.mouse.click(box.x + 200, box.y + depth * 22 + 8);
      await settled(page);
    }
    await page.keyboard.press("Escape");
    await page.getByLabel("Search in the flame graph").fill("std");
    await settled(page);
  });
  row("flame graph without a threshold: script in the longest frame, drawing, zooming, searching", name, bound, ms(most));
};

const memory = ({ server }, name) => {
  const kilobytes = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`, "utf8"))?.[1]);
  row("server's memory, highest", name, "400 MB", `${Math.round((kilobytes * 1024) / 1e6)} MB`);
};

const scripts = async ({ page }) => {
  const sizes = await page.evaluate(async () => {
    const names = ["page.js", "worker.js"];
    return Promise.all(names.map(async (name) => (await fetch(name)).text()));
  });
  row("scripts, gzipped", "the page and its worker", "250 kB", `${(gzipSync(sizes.join("")).length / 1000).toFixed(0)} kB`);
};

await close(await open("demo"));
await opening("demo", "500 ms");
await opening("python", "2 s");
await opening("compiler", "-");
for (const name of ["python", "large"]) {
  const opened = await open(name);
  await settled(opened.page);
  await brushing(opened, name, name === "large" ? "100 ms" : "-");
  memory(opened, name);
  await close(opened);
}
const opened = await open("compiler");
await settled(opened.page);
await tree(opened, "compiler", "top-down", "20 ms");
await tree(opened, "compiler", "bottom-up", "20 ms");
await flame(opened, "compiler", "20 ms");
memory(opened, "compiler");
await scripts(opened);
await close(opened);
console.log(`## The page

Made by \`make bench\` (\`tests/page/bench.sh\`) in Chromium, which runs already and has shown the page once: a browser's own start is not counted.
Openings are the median of ${ROUNDS}.

| what | trace | promised | measured |
|---|---|---|---|
${table.join("\n")}
`);
await (await browser()).close();
process.exit(0);

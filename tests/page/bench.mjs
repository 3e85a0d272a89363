// Measures the page; decides nothing. `node bench.mjs FILE...` with HEAPTRACK_BIN: how long a trace takes to open, a range to be answered, and how
// much script the page's own thread runs in a frame while trees and the flame graph of all code are expanded, scrolled and searched.
import { spawn } from "node:child_process";
import { browser, serve, settled, visit } from "./harness.mjs";

const longest = async (page, name, action) => {
  const session = await page.context().newCDPSession(page);
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["devtools.timeline", "toplevel", "__metadata"] } });
  await action();
  const done = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
  await session.send("Tracing.end");
  await done;
  const main = new Set(events.filter((event) => event.name === "thread_name" && event.args?.name === "CrRendererMain").map((event) => `${event.pid} ${event.tid}`));
  const isScript = (event) => ["FunctionCall", "EvaluateScript", "FireAnimationFrame", "RunMicrotasks", "TimerFire", "EventDispatch"].includes(event.name);
  const times = events.filter((event) => event.ph === "X" && isScript(event) && main.has(`${event.pid} ${event.tid}`)).map((event) => (event.tdur ?? event.dur) / 1000);
  times.sort((a, b) => b - a);
  console.log(`  ${name}: longest script ${times[0]?.toFixed(1)} ms of CPU, then ${times.slice(1, 4).map((time) => time.toFixed(1)).join(", ")}; ${times.length} in all`);
};

for (const file of process.argv.slice(2)) {
  const started = performance.now();
  const server = await serve([file]);
  const bound = performance.now();
  const page = await visit(server.url);
  await settled(page);
  console.log(`${file}: listening after ${(bound - started).toFixed(0)} ms, drawn after ${(performance.now() - started).toFixed(0)} ms`);
  const status = await page.evaluate(async () => (await fetch("/api/status?trace=0")).json());
  const runtime = status.traces[0].session.runtime_ns;
  console.log(`  ${status.traces[0].session.events} events`);
  const times = await page.evaluate(async (length) => {
    const list = [];
    for (let turn = 0; turn < 10; turn++) {
      const [from, to] = [Math.round(length * (0.05 + turn * 0.03)), Math.round(length * (0.5 + turn * 0.04))];
      const start = performance.now();
      await (await fetch(`/api/profile?trace=0&from=${from}&to=${to}`)).text();
      list.push(performance.now() - start);
    }
    return list.sort((a, b) => a - b);
  }, runtime);
  console.log(`  a range: ${times[0].toFixed(0)} to ${times.at(-1).toFixed(0)} ms, median ${times[5].toFixed(0)} ms`);
  for (const direction of ["top-down", "bottom-up"]) {
    const label = direction === "top-down" ? "Top-down tree" : "Bottom-up tree";
    await page.evaluate((address) => {
      location.hash = address;
    }, `#/${direction}?levels=all`);
    await settled(page);
    await longest(page, `${direction}: expand all`, async () => {
      await page.locator(`[aria-label="${label}"]`).focus();
      await page.keyboard.press("Home");
      for (let row = 0; row < 3; row++) {
        await page.keyboard.press("*");
        await settled(page);
        await page.keyboard.press("End");
        await settled(page);
      }
    });
    const rows = await page.locator(`[aria-label="${label}"]`).getAttribute("aria-rowcount");
    await longest(page, `${direction}: scroll ${rows} rows`, async () => {
      await page.locator(`[aria-label="${label}"]`).evaluate(async (node) => {
        // Asked for once: it would make the browser lay the page out in the middle of a script.
        const height = node.scrollHeight;
        for (let turn = 0; turn < 60; turn++) {
          node.scrollTop = (height * ((turn * 7) % 60)) / 60;
          await new Promise((done) => requestAnimationFrame(done));
        }
      });
    });
  }
  await page.evaluate(() => {
    location.hash = "#/flame?levels=all&threshold=0";
  });
  await settled(page);
  await longest(page, "flame graph, no threshold: zoom, hover, search", async () => {
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
  const memory = spawn("sh", ["-c", `grep VmHWM /proc/${server.child.pid}/status`], { stdio: ["ignore", "inherit", "inherit"] });
  await new Promise((done) => memory.once("exit", done));
  await page.close();
  server.child.kill();
}
await (await browser()).close();
process.exit(0);

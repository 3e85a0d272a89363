// The page follows a program that is still running.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { bin, check, equal, has, holds, print, rows, settled, trace, traces, visit } from "./harness.mjs";

/** Starts a recording with its page. Returns its process, the page's address, and what it says. */
const started = async (name, options, script) => {
  // The shell reads from a socket, and would run the start file of the user, as one that is called over a network.
  const env = { ...process.env, DISPLAY: "", BROWSER: undefined, WAYLAND_DISPLAY: "" };
  const child = spawn(bin, ["--live", ...options, "-o", join(traces, name), "/bin/bash", "--norc", "-c", script], { stdio: ["pipe", "pipe", "pipe"], env });
  const live = { child, said: "", out: "" };
  child.stdout.on("data", (text) => (live.out += text));
  live.ended = new Promise((done) => child.once("exit", (code) => done(code)));
  live.url = await new Promise((done, failed) => {
    child.stderr.on("data", (text) => {
      live.said += text;
      const found = /http:\/\/\S+/.exec(live.said)?.[0];
      if (found) done(found);
    });
    live.ended.then((code) => failed(new Error(`ended with ${code}: ${live.said}`)));
  });
  return live;
};

/** Stops the server, which waits for Ctrl-C when the program has ended. */
const stopped = async (live, page) => {
  live.child.kill("SIGINT");
  equal(await live.ended, 0, "the program's exit code");
  page.problems.length = 0;
  await page.close();
};

await check("--live records and shows; the page grows with it and stays when it has ended", async () => {
  const script = 'i=0; while read line; do i=$((i+1)); a="$a$line$line$line"; done; echo $i';
  const live = await started("x-live", [], script);
  const feed = (count) => live.child.stdin.write(`${"x".repeat(100)}\n`.repeat(count));
  feed(200);
  const page = await visit(live.url);
  await page.waitForSelector(".badge.live");
  const events = async () => Number.parseFloat((await page.locator(".facts").innerText()).match(/([\d,.]+)( k)? events/)[1].replace(/,/g, ""));
  await page.waitForFunction(() => /[1-9][\d,.]*( k)? events/.test(document.querySelector(".facts")?.textContent ?? ""));
  const before = await page.locator(".facts").innerText();
  await page.getByRole("tab", { name: "Memory" }).click();
  await page.waitForSelector('[aria-label="Parts of the memory"] .grid-row');
  await page.getByRole("tab", { name: "Summary" }).click();
  feed(300);
  await page.waitForFunction((old) => document.querySelector(".facts")?.textContent !== old, before);
  holds((await events()) > 0, "events");
  live.child.stdin.end();
  await page.waitForFunction(() => !document.querySelector(".badge.live"), undefined, { timeout: 30_000 });
  await settled(page);
  equal(live.out.trim(), "500", "the program's own output");
  has(live.said, "the page stays at");
  await stopped(live, page);
});

await check("--live --follow: processes appear in the page while they start, and have print's numbers in the end", async () => {
  const script = 'while read line; do a="$a$line"; /bin/echo "$line"; done';
  const live = await started("x-live-tree", ["--follow"], script);
  const feed = (count) => live.child.stdin.write(`${"x".repeat(100)}\n`.repeat(count));
  feed(3);
  const page = await visit(live.url);
  await page.waitForSelector(".badge.live");
  await page.getByRole("tab", { name: "Processes" }).click();
  /** Waits until the list has this many programs that the shell has started. */
  const echoes = (count) => page.waitForFunction((count) => [...document.querySelectorAll('[aria-label="Processes"] .grid-row')].filter((row) => /^echo \(\d+\)/.test(row.innerText)).length === count, count);
  await echoes(3);
  feed(2);
  await echoes(5);
  holds(await page.locator(".badge.live").isVisible(), "the shell runs on");
  live.child.stdin.end();
  await page.waitForFunction(() => !document.querySelector(".badge.live"), undefined, { timeout: 30_000 });
  await settled(page);
  equal(live.out, `${"x".repeat(100)}\n`.repeat(5), "the programs' own output");
  const columns = ["peak_bytes", "live_bytes", "allocations", "temporary"];
  const wanted = print("processes", trace("x-live-tree")).processes;
  equal((await rows(page, "Processes")).map((row) => columns.map((cost) => Number(row.cells[cost])).join()).sort(), wanted.map(({ costs }) => columns.map((cost) => costs[cost]).join()).sort(), "processes");
  equal(wanted.filter(({ name, exit }) => name === "echo" && exit === "code 0").length, 5, "their ends");
  await stopped(live, page);
});

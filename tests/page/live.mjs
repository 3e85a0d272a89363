// The page follows a program that is still running.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { bin, check, equal, has, holds, settled, traces, visit } from "./harness.mjs";

await check("--live records and shows; the page grows with it and stays when it has ended", async () => {
  const script = 'i=0; while read line; do i=$((i+1)); a="$a$line$line$line"; done; echo $i';
  const child = spawn(bin, ["--live", "-o", join(traces, "x-live"), "/bin/bash", "-c", script], { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, DISPLAY: "", BROWSER: undefined, WAYLAND_DISPLAY: "" } });
  let said = "";
  let out = "";
  child.stdout.on("data", (text) => (out += text));
  const url = await new Promise((done, failed) => {
    child.stderr.on("data", (text) => {
      said += text;
      const found = /http:\/\/\S+/.exec(said)?.[0];
      if (found) done(found);
    });
    child.on("exit", (code) => failed(new Error(`ended with ${code}: ${said}`)));
  });
  const feed = (count) => child.stdin.write(`${"x".repeat(100)}\n`.repeat(count));
  feed(200);
  const page = await visit(url);
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
  child.stdin.end();
  await page.waitForFunction(() => !document.querySelector(".badge.live"), undefined, { timeout: 30_000 });
  await settled(page);
  equal(out.trim(), "500", "the program's own output");
  has(said, "the page stays at");
  const exit = new Promise((done) => child.once("exit", (code) => done(code)));
  child.removeAllListeners("exit");
  const ended = new Promise((done) => child.once("exit", (code) => done(code)));
  child.kill("SIGINT");
  equal(await ended, 0, "the program's exit code");
  void exit;
  page.problems.length = 0;
  await page.close();
});

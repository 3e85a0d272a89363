// Files that are cut, empty, foreign or deleted, a server that is gone, and messages of `heaptrack analyze` on the terminal.
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, readFileSync, unlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { bin, check, equal, go, has, holds, print, rows, serve, settled, trace, traces, visit } from "./harness.mjs";

const refused = (...words) => {
  const done = spawnSync(bin, ["analyze", "--no-browser", ...words], { encoding: "utf8", timeout: 20_000 });
  equal(done.status, 2, `${words}: exit code`);
  equal(done.stdout, "", "nothing on stdout");
  equal(done.stderr.trim().split("\n").length, 1, `one sentence: ${done.stderr}`);
  return done.stderr;
};

await check("an empty, a foreign, a missing file and a folder are refused with a sentence", async () => {
  const empty = join(traces, "x-empty.dat");
  writeFileSync(empty, "");
  const foreign = join(traces, "x-foreign.dat");
  writeFileSync(foreign, "#!/bin/sh\necho this is no trace\n".repeat(50));
  for (const file of [empty, foreign, join(traces, "no-such.htz"), traces]) has(refused(file), file);
  unlinkSync(empty);
  unlinkSync(foreign);
});
await check("a truncated file is shown up to its end, and the page says that it is not finished", async () => {
  const cut = join(traces, "x-cut.dat");
  const whole = readFileSync(trace("orders"));
  writeFileSync(cut, whole.subarray(0, Math.floor(whole.length * 0.6)));
  execFileSync("touch", ["-d", "1 hour ago", cut]);
  const server = await serve([cut]);
  const page = await visit(server.url);
  await settled(page);
  has(await page.locator(".note").first().innerText(), "not finished");
  has(await page.locator(".facts").innerText(), "not finished");
  holds((await page.locator(".figure").first().innerText()) !== "0 B", "the part that could be read is shown");
  await page.close();
  server.child.kill();
  unlinkSync(cut);
});
await check("the page says what could not be recorded, in print's words", async () => {
  const { unseen } = print("summary", trace("python"));
  equal(unseen.map((one) => one.kind), ["pymalloc"], "what print says");
  const server = await serve([trace("python")]);
  const page = await visit(server.url);
  await settled(page);
  const notes = await page.locator(".note").allInnerTexts();
  holds(notes.some((note) => note.includes(`Not recorded: ${unseen[0].sentence}`)), `notes: ${JSON.stringify(notes)}`);
  await page.close();
  server.child.kill();
});
await check("of several files the bad one is named on the page, the others open", async () => {
  const bad = join(traces, "x-bad.dat");
  writeFileSync(bad, "nothing");
  const server = await serve([trace("orders"), bad]);
  const page = await visit(server.url);
  await settled(page);
  has(await page.locator(".command").innerText(), "orders");
  await page.evaluate(() => {
    location.hash = "#/summary?file=1";
  });
  await page.waitForSelector(".lonely .problem");
  has(await page.locator(".problem").innerText(), "x-bad.dat cannot be read");
  await page.getByRole("button", { name: "orders.htz" }).click();
  await page.waitForSelector(".figures");
  await page.close();
  server.child.kill();
  unlinkSync(bad);
});
await check("a file that is deleted after it was opened still answers for a range", async () => {
  const copy = join(traces, "x-gone.dat");
  copyFileSync(trace("orders"), copy);
  const server = await serve([copy]);
  const page = await visit(server.url);
  await settled(page);
  unlinkSync(copy);
  await go(page, "#/bottom-up?from=1000&to=300000000");
  holds((await rows(page, "Bottom-up tree")).length > 3, "a range still works");
  await page.close();
  server.child.kill();
});
await check("the page says that its server is gone", async () => {
  const server = await serve([trace("orders")]);
  const page = await visit(server.url);
  await settled(page);
  server.child.kill("SIGKILL");
  await new Promise((done) => server.child.once("exit", done));
  await page.evaluate(() => {
    location.hash = "#/threads?from=77";
  });
  await page.waitForSelector(".problem");
  has(await page.locator(".problem").first().innerText(), "Start it again");
  page.problems.length = 0;
  await page.close();
});
await check("a port in use is a sentence, and so is an impossible address", async () => {
  const other = createServer().listen(0, "127.0.0.1");
  await new Promise((done) => other.once("listening", done));
  const { port } = other.address();
  has(refused("--port", String(port), trace("orders")), `port ${port} is in use`);
  other.close();
  has(refused("--listen", "203.0.113.7", trace("orders")), "cannot listen");
});
await check("a bad line in a file of suppressions is refused with its number", async () => {
  const file = join(traces, "x-supp.txt");
  writeFileSync(file, "leak:fine\nnonsense\n");
  has(refused("--suppressions", file, trace("orders")), "line 2");
  unlinkSync(file);
});
await check("over ssh the line to type is printed", async () => {
  const { spawn } = await import("node:child_process");
  const child = spawn(bin, ["analyze", trace("orders")], { env: { ...process.env, SSH_CONNECTION: "10.0.0.2 50000 10.0.0.9 22", USER: "me", DISPLAY: "", BROWSER: undefined }, stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  child.stderr.on("data", (text) => (said += text));
  await new Promise((done) => {
    const look = () => (said.includes("Ctrl-C") ? done() : child.stderr.once("data", look));
    child.stderr.once("data", look);
  });
  holds(/ssh -N -L (\d+):127\.0\.0\.1:\1 me@10\.0\.0\.9/.test(said), said);
  child.kill();
});

// Shared by all tests of the page: a browser, servers, and checks that report what failed.
//
// Environment: HEAPTRACK_BIN; TRACES, a folder with orders.htz, base.htz, longer.htz, pool.htz, compiler.htz, python.htz, node.htz, twins.htz,
// twins-before.htz, twins-again.htz, screens.htz, screens-before.htz, pool-before.htz, folded.htz, folded-before.htz; SHOTS, the folder for pictures; PAGE
// (optional), a folder with a built page that is tested instead of the binary's own; BROWSER (optional), `firefox` instead of Chromium; CHROMIUM and FIREFOX
// (optional), the browsers' paths.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, firefox } from "playwright-core";

export const bin = process.env.HEAPTRACK_BIN ?? "heaptrack";
export const traces = process.env.TRACES ?? ".";
export const shots = process.env.SHOTS ?? "shots";
mkdirSync(shots, { recursive: true });
export const trace = (name) => join(traces, `${name}.htz`);

let failed = 0;
let done = 0;

/** Runs one check. The next one runs even if this one fails. */
export const check = async (name, body) => {
  const start = performance.now();
  try {
    await body();
    done += 1;
    console.log(`ok      ${name} (${Math.round(performance.now() - start)} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}: ${error.stack ?? error}`);
    const page = open.filter((one) => !one.isClosed()).at(-1);
    if (page) await page.screenshot({ path: join(shots, `failed-${name.replace(/\W+/g, "-").slice(0, 60)}.png`) }).catch(() => undefined);
  }
};

export const equal = (found, wanted, what) => {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`${what}: found ${a?.slice(0, 400)}, wanted ${b?.slice(0, 400)}`);
};
export const holds = (condition, what) => {
  if (!condition) throw new Error(what);
};
export const has = (text, part, what = "text") => holds(String(text).includes(part), `${what}: ${JSON.stringify(part)} is not in ${JSON.stringify(String(text).slice(0, 600))}`);

/** The output of `heaptrack print` as JSON. */
export const print = (view, file, ...options) =>
  JSON.parse(execFileSync(bin, ["print", "--json", "--view", view, ...options, file], { encoding: "utf8", maxBuffer: 1 << 30 }));

const servers = [];
/** Starts a server for these files. */
export const serve = (files, ...options) =>
  new Promise((resolve, reject) => {
    const child = spawn(bin, ["analyze", "--no-browser", ...options, ...files], { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, SSH_CONNECTION: "" } });
    servers.push(child);
    let [out, said] = ["", ""];
    // The line about how to stop the server is the last one that it prints at its start.
    const look = () => {
      if (!out.includes("\n") || !said.includes("Ctrl-C")) return;
      const url = new URL(out.trim());
      resolve({ child, url: url.href, origin: url.origin, port: Number(url.port), token: url.searchParams.get("token"), said: () => said });
    };
    child.stderr.on("data", (text) => {
      said += text;
      look();
    });
    child.stdout.on("data", (text) => {
      out += text;
      look();
    });
    child.on("exit", (code) => reject(new Error(`the server ended with ${code}: ${said}`)));
  });

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const folder = mkdtempSync(join(tmpdir(), "heaptrack-browser-"));
let context;
const open = [];
const KINDS = { "page.js": "text/javascript", "worker.js": "text/javascript", "page.css": "text/css" };
/** From now on the page's scripts and styles come from this folder. Returns a function that ends that. */
export const replacePage = async (from) => {
  const where = await browser();
  const routes = Object.entries(KINDS).map(([name, contentType]) => [`**/${name}`, (route) => route.fulfill({ path: join(from, name), contentType })]);
  for (const [address, answer] of routes) await where.route(address, answer);
  return async () => {
    for (const [address, answer] of routes) await where.unroute(address, answer);
  };
};
export const isFirefox = process.env.BROWSER === "firefox";
/** An ordinary Firefox, by WebDriver BiDi. Newer versions of playwright-core than the one in package.json send it commands that it does not know. */
const openFirefox = async () => {
  const started = await firefox.launch({ executablePath: process.env.FIREFOX ?? "/usr/bin/firefox-esr", channel: "moz-firefox", headless: true, downloadsPath: folder });
  return started.newContext({ viewport: { width: 1540, height: 980 }, acceptDownloads: true });
};
export const browser = async () => {
  if (context) return context;
  if (isFirefox) return (context = await openFirefox());
  context = await chromium.launchPersistentContext(folder, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    viewport: { width: 1540, height: 980 },
    acceptDownloads: true,
    permissions: ["clipboard-read", "clipboard-write"],
    args: FLAGS,
  });
  if (process.env.PAGE) await replacePage(process.env.PAGE);
  return context;
};

/** Opens a page at a state. Every error that it logs or throws is a failure, unless `mayLog` is set. `first` runs in the page before its own script. */
export const visit = async (url, hash = "", first = undefined) => {
  const page = await (await browser()).newPage();
  if (first) await page.addInitScript(first);
  open.push(page);
  page.problems = [];
  page.on("console", (message) => message.type() === "error" && !page.mayLog && page.problems.push(message.text()));
  page.on("pageerror", (error) => !page.mayLog && page.problems.push(String(error)));
  page.setDefaultTimeout(15_000);
  await page.goto(url + hash);
  await page.waitForSelector(".page, .lonely");
  await page.waitForSelector(".figures, .lonely");
  return page;
};

/** Changes the state as a link would, and waits until the page has drawn it. */
export const go = async (page, hash) => {
  await page.evaluate((address) => {
    location.hash = address;
  }, hash);
  await settled(page);
};

/** Presses keys one after the other. */
export const press = async (page, ...keys) => {
  for (const key of keys) await page.keyboard.press(key);
};

/** Waits until no request is open and none was made during several frames in a row. */
export const settled = (page) =>
  page.evaluate(
    () =>
      new Promise((done) => {
        let quiet = 0;
        const look = () => {
          quiet = (window.heaptrackWaiting?.() ?? 0) === 0 && !document.querySelector(".busy") ? quiet + 1 : 0;
          if (quiet > 8) done();
          else requestAnimationFrame(() => setTimeout(look));
        };
        look();
      }),
  );

/** Clicks, and returns the text of the file that the browser saves. */
export const saved = async (page, click) => {
  if (!isFirefox) {
    const [download] = await Promise.all([page.waitForEvent("download"), click()]);
    return readFileSync(await download.path(), "utf8");
  }
  // playwright-core misses the event of Firefox for a file that the page itself made.
  const before = new Set(readdirSync(folder));
  await click();
  for (const end = performance.now() + 15_000; performance.now() < end; await page.waitForTimeout(50)) {
    const name = readdirSync(folder).find((one) => !before.has(one) && !one.endsWith(".part"));
    const text = name ? readFileSync(join(folder, name), "utf8") : "";
    if (text) return text;
  }
  throw new Error("no file was saved");
};

/** The visible rows of a table as objects with the exact values of the columns. */
export const rows = (page, label) =>
  page.$$eval(`[aria-label="${label}"] .grid-row`, (list) =>
    list
      .map((row) => ({ at: Number(row.getAttribute("aria-rowindex")), cells: Object.fromEntries([...row.querySelectorAll("[data-column]")].map((cell) => [cell.dataset.column, cell.dataset.value])), level: Number(row.getAttribute("aria-level")), text: row.innerText }))
      .sort((a, b) => a.at - b.at),
  );

export const finish = async () => {
  for (const page of open) if (!page.isClosed()) equal(page.problems, [], "errors of a page");
};

export const end = async () => {
  const problems = open.flatMap((page) => page.problems);
  if (problems.length > 0) {
    failed += 1;
    console.log(`FAILED  pages logged errors: ${problems.join("\n")}`);
  }
  const started = context?.browser();
  await context?.close();
  await started?.close();
  for (const child of servers) child.kill("SIGTERM");
  rmSync(folder, { recursive: true, force: true });
  console.log(`${done} hold, ${failed} failed`);
  process.exit(failed > 0 ? 1 : 0);
};

// The viewer in a browser, from disk and from a plain static server: files are dropped and chosen, every view is shown, numbers are print's, and nothing is requested.
//
// Arguments: traces of every kind that can be opened. Environment: as tests/page/harness.mjs.
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { crawl, seed, withoutFrames } from "../page/crawl/crawler.mjs";
import { SUBJECTS } from "../page/crawl/subjects.mjs";
import { check, end, equal, go, has, holds, print, rows, saved, serve, settled, trace, visit } from "../page/harness.mjs";
import { SENDERS, VIEWS, drop, outside, questions, shown, site, tryRequests, tryScripts, viewer, wanted } from "./shared.mjs";

const away = await outside();
const host = await site(viewer);

await check("it has at most 2.5 MB, and a policy that forbids every request", async () => {
  holds(statSync(viewer).size <= 2_500_000, `${statSync(viewer).size} bytes`);
  const policy = /Content-Security-Policy" content="([^"]*)"/.exec(readFileSync(viewer, "utf8"))?.[1] ?? "";
  for (const part of ["default-src 'none'", "connect-src 'none'", "form-action 'none'", "base-uri 'none'"]) has(policy, part);
  for (const word of SENDERS) holds(!readFileSync(viewer, "utf8").includes(word), `${word} is in the page`);
  holds(!policy.includes("unsafe-inline") && !policy.includes("'unsafe-eval'") && !policy.includes("http"), policy);
});

for (const [how, address] of [["from disk", pathToFileURL(viewer).href], ["from a static server", host.url]]) {
  const page = await visit(address);
  await check(`${how}: it says that nothing leaves the browser, and asks for a file`, async () => {
    has(await page.locator(".lonely").innerText(), "Nothing leaves your browser");
    equal(await page.locator("input[type=file]").count(), 1, "a chooser");
  });
  await check(`${how}: a dropped trace opens, and every view is there`, async () => {
    await drop(page, trace("orders"));
    for (const view of VIEWS) {
      await go(page, `#/${view}`);
      const problems = await page.locator(".problem").allInnerTexts();
      if (view === "source") has(problems.join(), "orders.cpp is not in the trace", view);
      else equal(problems, [], view);
      holds((await page.locator("#view").innerText()).length > 20, `${view} is empty`);
    }
  });
  await check(`${how}: ranges, moments and filters have the numbers of print`, async () => {
    for (const [words, options, columns] of questions()) {
      await go(page, `#/bottom-up?levels=mine&${words}`);
      equal(await shown(page, columns), wanted("orders", columns, ...options), words);
    }
  });
  await check(`${how}: two dropped files are compared`, async () => {
    await drop(page, trace("longer"));
    has(await page.locator("header .command").innerText(), "orders");
    await go(page, "#/bottom-up?file=1&compare=0&levels=mine&recursion=1");
    const of = (name) => new Map(print("bottom-up", trace(name), "--hide", "all-but-mine", "--collapse", "recursion").roots.map((one) => [one.function ?? one.short, one.total.allocations]));
    const [now, before] = [of("longer"), of("orders")];
    const wanted = [...new Set([...now.keys(), ...before.keys()])].map((name) => (now.get(name) ?? 0) - (before.get(name) ?? 0)).sort((a, b) => a - b);
    const found = (await rows(page, "Bottom-up tree")).map((row) => Number(row.cells.allocations)).sort((a, b) => a - b);
    equal(found, wanted, "differences of allocations");
    await go(page, "#/summary?file=1&compare=0");
    has(await page.locator("header.top").innerText(), "compared to orders.htz");
  });
  await check(`${how}: export saves a file, and suppressions can be added`, async () => {
    await go(page, "#/summary");
    await page.getByRole("button", { name: "Export" }).click();
    has(await saved(page, () => page.getByText("Functions as CSV").click()), "formatRow");
    const known = join(process.env.TRACES, "known.supp");
    writeFileSync(known, "leak:makeToken\n");
    await go(page, "#/bottom-up?levels=mine");
    const columns = ["leaked_bytes", "allocations"];
    const before = await shown(page, columns);
    equal(before, wanted("orders", columns), "all leaks");
    await page.getByRole("button", { name: "Open…" }).click();
    await page.locator('input[accept*=".supp"]').setInputFiles(known);
    await page.getByText("1 suppression added.").waitFor();
    await settled(page);
    const after = await shown(page, columns);
    equal(after, wanted("orders", columns, "--suppressions", known), "without the known leaks");
    holds(before.join("\n") !== after.join("\n"), "the suppression matches something");
  });
  await check(`${how}: a file of rules says what the user's own code is, and a wrong one changes nothing`, async () => {
    const [known, rules, wrong] = ["known.supp", "own.rules", "wrong.rules"].map((name) => join(process.env.TRACES, name));
    writeFileSync(rules, "dependency name report::*\n");
    writeFileSync(wrong, "no rule\n");
    const columns = ["leaked_bytes", "allocations"];
    const choose = async (path, sentence) => {
      await page.getByRole("button", { name: "Open…" }).click();
      await page.locator('input[accept*=".rules"]').setInputFiles(path);
      await page.getByText(sentence).waitFor();
      await settled(page);
      return await shown(page, columns);
    };
    const before = await shown(page, columns);
    const after = await choose(rules, "Your own code is now what own.rules says.");
    equal(after, wanted("orders", columns, "--suppressions", known, "--rules", rules), "with rules, and still with the suppressions");
    holds(before.join("\n") !== after.join("\n"), "the rule matches something");
    equal(await choose(wrong, "wrong.rules: "), after, "after a wrong file");
  });
  await check(`${how}: no other script can run`, () => tryScripts(page));
  await check(`${how}: a request to anywhere is impossible`, async () => {
    await tryRequests(page, away);
  });
  await page.close();
}

await check("the server that must see nothing would have seen it", async () => {
  await fetch(`http://${away.place}/control`);
  equal(away.seen, ["/control"], "requests");
});
await check("every kind of file opens, and a file that is no trace is refused with a sentence", async () => {
  const page = await visit(pathToFileURL(viewer).href);
  for (const path of process.argv.slice(2)) {
    await drop(page, path);
    equal(await page.locator(".lonely .problem").allInnerTexts(), [], path);
  }
  await page.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File(["this is no trace"], "letter.txt"));
    document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
  });
  await page.locator(".lonely .problem").waitFor();
  has(await page.locator(".lonely .problem").innerText(), "letter.txt cannot be read");
  await page.close();
});
await check("reading a file can be cancelled", async () => {
  const page = await visit(pathToFileURL(viewer).href);
  // A file whose reader is slow, so that the button is there to be clicked.
  await page.evaluate(() => {
    const data = new DataTransfer();
    const line = "+ 0\n- 0\n".repeat(1 << 17);
    data.items.add(new File(["v 10300 2\nX ./a\ns /bin/a\ns f\ni 1000 1 2\nt 1 0\na 10 1\n", ...new Array(80).fill(line)], "long.txt"));
    document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
  });
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByText("Drop a trace here").waitFor();
  await drop(page, trace("orders"));
  equal(await page.locator(".problem").count(), 0, "the next file opens");
  await page.close();
});
await check(`random states of the viewer without a contradiction to the server (HEAPTRACK_SEED=${seed})`, async () => {
  const subject = SUBJECTS.screens;
  const server = await serve(subject.traces.map(trace));
  const page = await visit(pathToFileURL(viewer).href, "", withoutFrames);
  const open = () => drop(page, ...subject.traces.map(trace));
  const reload = async () => {
    await page.reload();
    await page.waitForSelector(".lonely");
    await open();
  };
  await open();
  const { wrong, states } = await crawl(page, server, { seed, states: Number(process.env.CRAWL_STATES ?? 200), most: 12, subject, reload });
  equal(wrong, [], `contradictions in ${states} states`);
  await page.close();
});
away.stop();
host.stop();
await end();

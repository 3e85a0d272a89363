// Accessibility: axe-core, keyboard, light and dark, from a phone to 4K.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { check, equal, go, has, holds, press, serve, settled, trace, visit } from "./harness.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const server = await serve([trace("orders"), trace("base"), trace("longer")]);
const page = await visit(server.url);
await settled(page);
const VIEWS = ["summary", "flame", "bottom-up", "top-down", "callers?fn=main", "consumed", "allocations", "temporary", "sizes", "memory", "lifetimes", "leaks", "threads", "source", "summary?compare=1&runs=2&normalise=second", "bottom-up?compare=1&runs=2", "flame?compare=1"];
// The page's content security policy forbids foreign scripts, but the browser's debugger may run them.
const problems = async () => {
  const found = await page.evaluate(`${axe}; axe.run(document, { resultTypes: ["violations"] })`);
  return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", ")}`);
};

for (const theme of ["light", "dark"]) {
  await check(`axe-core finds nothing, ${theme}`, async () => {
    await page.emulateMedia({ colorScheme: theme });
    const found = [];
    for (const view of VIEWS) {
      await go(page, `#/${view}`);
      found.push(...(await problems()).map((problem) => `${view}: ${problem}`));
    }
    await go(page, "#/bottom-up");
    await page.locator(".grid-row").first().click();
    await settled(page);
    found.push(...(await problems()).map((problem) => `details: ${problem}`));
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Help" }).click();
    found.push(...(await problems()).map((problem) => `help: ${problem}`));
    await page.keyboard.press("Escape");
    equal(found, [], "violations");
  });
}
await check("by keyboard: timeline, tabs, flame graph, search", async () => {
  await page.emulateMedia({ colorScheme: "light" });
  await go(page, "#/summary");
  await press(page, "t", "ArrowRight", "Enter");
  await page.waitForFunction(() => location.hash.includes("at="));
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !location.hash.includes("at="));
  await press(page, "Shift+ArrowRight", "Shift+ArrowRight");
  await page.waitForFunction(() => location.hash.includes("from="));
  await page.keyboard.press("Escape");
  await page.locator("#tab-summary").focus();
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => location.hash.startsWith("#/flame"));
  await settled(page);
  await page.locator(".flame-paper").focus();
  await press(page, "ArrowDown", "ArrowDown");
  await page.waitForFunction(() => document.querySelector(".said")?.textContent?.includes("of the total"));
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash.includes("zoom="));
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !location.hash.includes("zoom="));
  await page.keyboard.press("/");
  equal(await page.evaluate(() => document.activeElement?.getAttribute("type")), "search", "search has the focus");
});
await check("tables tell a screen reader where it is", async () => {
  await go(page, "#/top-down");
  const table = page.locator('[role="treegrid"]');
  holds(Number(await table.getAttribute("aria-rowcount")) > 1, "row count");
  const row = table.locator(".grid-row").first();
  equal(await row.getAttribute("aria-level"), "1", "level");
  equal(await row.getAttribute("aria-expanded"), "false", "expanded");
  await table.focus();
  await page.keyboard.press("ArrowRight");
  await settled(page);
  equal(await row.getAttribute("aria-expanded"), "true", "expanded");
  has(await table.getAttribute("aria-activedescendant"), "row-0");
});
await check("columns are sorted by keyboard", async () => {
  await go(page, "#/bottom-up?sort=peak_bytes");
  const table = page.locator('[role="treegrid"]');
  const here = async () => page.locator(`[id="${await table.getAttribute("aria-activedescendant")}"]`);
  await table.focus();
  await press(page, "Home", "ArrowUp");
  const [head, ...others] = await table.getByRole("columnheader").all();
  equal(await (await here()).innerText(), await head.innerText(), "above the first row are the heads of the columns");
  const wanted = (await Promise.all(others.map((one) => one.innerText()))).findIndex((text) => text.startsWith("Allocations")) + 1;
  await press(page, ...Array(wanted).fill("ArrowRight"));
  equal(await (await here()).getAttribute("role"), "columnheader", "role");
  has(await (await here()).innerText(), "Allocations", "the head with the cursor");
  await page.keyboard.press("Enter");
  await settled(page);
  has(await page.evaluate(() => location.hash), "sort=allocations");
  equal(await (await here()).getAttribute("aria-sort"), "descending", "first the highest");
  await page.keyboard.press(" ");
  await settled(page);
  equal(await (await here()).getAttribute("aria-sort"), "ascending", "then the lowest");
  await page.keyboard.press("ArrowDown");
  has(await table.getAttribute("aria-activedescendant"), "row-0", "below the heads is the first row");
  await page.keyboard.press("?");
  has(await page.locator("dialog").innerText(), "Enter sorts by it");
  await page.keyboard.press("Escape");
});
await check("from a phone to 4K nothing is wider than the window, and the data begins inside it", async () => {
  for (const [width, height] of [[390, 844], [1024, 700], [1280, 720], [1540, 980], [2560, 1440], [3840, 2160]]) {
    await page.setViewportSize({ width, height });
    for (const view of VIEWS) {
      await go(page, `#/${view}`);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      holds(over <= 0, `${view} at ${width}: ${over} pixels too wide`);
      const { y } = await page.locator(".content").boundingBox();
      holds(view.startsWith("summary") || y < height * (width < 500 ? 1 : 0.9), `${view} at ${width} × ${height} begins at ${y}`);
    }
  }
  await page.setViewportSize({ width: 1540, height: 980 });
});
await page.close();
server.child.kill();

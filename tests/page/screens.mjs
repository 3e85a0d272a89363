// Takes a picture of every view, which CI keeps for people to look at. The test only checks that the pictures can be taken.
import { statSync } from "node:fs";
import { join } from "node:path";
import { check, go, holds, serve, settled, shots, trace, visit } from "./harness.mjs";

const SCREENS = {
  summary: "#/summary",
  flame: "#/flame?levels=all",
  "bottom-up": "#/bottom-up?levels=all",
  "top-down": "#/top-down",
  callers: "#/callers?fn=main",
  consumed: "#/consumed",
  allocations: "#/allocations",
  temporary: "#/temporary?cumulative=1",
  sizes: "#/sizes",
  lifetimes: "#/lifetimes",
  leaks: "#/leaks",
  memory: "#/memory",
  threads: "#/threads?chart=threads",
  source: "#/source",
  range: "#/summary?from=100000000&to=300000000",
  moment: "#/summary?at=peak",
  diff: "#/summary?compare=1&cost=leaked_bytes",
  runs: "#/summary?compare=1&cost=leaked_bytes&runs=2&normalise=second",
  "diff-flame": "#/flame?compare=1&cost=leaked_bytes",
};
const server = await serve([trace("orders"), trace("base"), trace("longer")]);
const page = await visit(server.url);
for (const [name, hash] of Object.entries(SCREENS)) {
  await check(`picture of ${name}`, async () => {
    await go(page, hash);
    await page.mouse.move(2, 2);
    const path = join(shots, `${name}.png`);
    await page.screenshot({ path });
    holds(statSync(path).size > 10_000, "a picture");
  });
}
await check("pictures of details, dark, and other programs", async () => {
  await go(page, "#/bottom-up");
  await page.locator(".grid-row").first().click();
  await settled(page);
  await page.screenshot({ path: join(shots, "details.png") });
  await page.keyboard.press("Escape");
  await page.emulateMedia({ colorScheme: "dark" });
  await go(page, "#/summary");
  await page.screenshot({ path: join(shots, "dark.png") });
  await go(page, SCREENS.runs);
  await page.mouse.move(2, 2);
  await page.screenshot({ path: join(shots, "runs-dark.png") });
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 3840, height: 2160 });
  await page.reload();
  await settled(page);
  await page.screenshot({ path: join(shots, "4k.png") });
  for (const name of ["python", "node", "pool"]) {
    const other = await serve([trace(name)]);
    const own = await visit(other.url);
    await settled(own);
    await own.screenshot({ path: join(shots, `${name}.png`) });
    await go(own, name === "pool" ? "#/summary?domain=custom" : "#/flame?levels=all");
    await own.screenshot({ path: join(shots, `${name}-${name === "pool" ? "custom" : "flame"}.png`) });
    await own.close();
    other.child.kill();
  }
});
await page.close();
server.child.kill();

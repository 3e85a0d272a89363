// Three typical searches: a leak, the peak, and churn. The answer is on the first screen, or one click away.
import { check, equal, has, holds, serve, settled, trace, visit } from "./harness.mjs";

const server = await serve([trace("orders")]);
const page = await visit(server.url);
await settled(page);
const list = (label) => page.locator(`section[aria-label="${label}"]`);

await check("the leak: its function, its blocks, whether it grows, and what is only a cache", async () => {
  const judged = list("Not freed: leak or not?");
  const [first] = await judged.locator(".entry").allInnerTexts();
  has(first, "leaky::makeToken");
  has(first, "grows");
  has(first, "8,000 of 8,000 kept");
  has(first, "440.0 kB");
  const session = await judged.locator(".entry", { hasText: "openSession" }).innerText();
  has(session, "800 of 8,000 kept");
  has(session, "166.4 kB");
  const cache = await judged.locator(".entry", { hasText: "db::Cache::insert" }).innerText();
  holds(!cache.includes("grows"), `a cache is not a leak: ${cache}`);
  await judged.locator(".entry").first().click();
  await page.locator(".detail").getByRole("button", { name: "Source" }).click();
  await page.waitForFunction(() => Boolean(document.querySelector(".listing tr.wanted pre")?.textContent));
  has(await page.locator(".listing tr.wanted").innerText(), "makeToken");
  await page.goBack();
  await page.keyboard.press("Escape");
  await settled(page);
});
await check("the peak: decode and blur, and what was live then", async () => {
  const entries = await list("Held at the peak").locator(".entry").allInnerTexts();
  equal(entries.length, 2, "two holders above 1 %");
  has(entries[0], "img::Pipeline::decode");
  has(entries[1], "img::Pipeline::blur");
  for (const entry of entries) has(entry, "15.7 MB");
  await page.locator(".peak").click();
  await settled(page);
  has(await page.locator(".figures").innerText(), "32.2 MB");
  has(await list("Live at this moment").innerText(), "img::Pipeline::blur");
  await page.goBack();
  await settled(page);
});
await check("the churn: formatRow's 360,000 blocks that hardly live, not only those freed at once", async () => {
  const entries = await list("Most allocations").locator(".entry").allInnerTexts();
  has(entries[0], "report::formatRow");
  has(entries[0], "288,000");
  has(entries[0], "< 0.1 ms");
  has(entries[1], "72,000");
  has(await page.locator(".figure-card", { hasText: "Short-lived" }).innerText(), "98 %");
  has(await list("Temporary").innerText(), "report::checksum");
  await list("Most allocations").locator(".entry").first().click();
  await settled(page);
  has(await page.locator(".detail").innerText(), "formatRow");
  await page.keyboard.press("Escape");
});
server.child.kill();

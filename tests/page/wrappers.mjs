// Wrappers of the allocator: they are listed, can be undone, and any function can be made one. All of it is in the address. Also the report that the server saves.
import { writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { check, equal, go, has, holds, print, serve, settled, shots, trace, visit } from "./harness.mjs";

const file = trace("compiler");
const server = await serve([file]);
const page = await visit(server.url);
await settled(page);
const hash = () => page.evaluate(() => location.hash);
const held = page.getByRole("region", { name: "Held at the peak" });
/** The values of the list on the page, and those of the engine for the same question. */
const shown = async () => {
  await settled(page);
  return (await held.locator('[data-number="entry peak_bytes"]').evaluateAll((all) => all.map((one) => Number(one.dataset.value)))).slice(0, 3);
};
const wanted = (...options) =>
  print("summary", file, ...options)
    .lists.peak.slice(0, 3)
    .map((row) => row.value);

await check("wrappers are listed, and a click undoes one", async () => {
  await go(page, "#/summary");
  const names = print("summary", file).wrappers.map((row) => row.short);
  has(names.join(" "), "xmalloc");
  equal(await shown(), wanted(), "owners");
  await page.locator(".wrappers summary").click();
  equal(await page.locator(".wrappers tbody tr").count(), names.length, "rows");
  await page.getByRole("button", { name: "xmalloc is no wrapper", exact: true }).click();
  await page.waitForFunction(() => location.hash.includes("not-wrapper=xmalloc"));
  equal(await shown(), wanted("--not-wrapper", "xmalloc"), "owners without the wrapper");
  has((await held.innerText()).replaceAll("\n", " "), "xmalloc");
  await page.goBack();
  equal(await shown(), wanted(), "Back");
});
await check("any function can be treated as the allocator", async () => {
  await go(page, "#/summary");
  const [first] = print("summary", file).lists.peak;
  await held.locator("li button").first().click();
  await settled(page);
  await page.getByRole("button", { name: "Treat as allocator" }).click();
  await page.waitForFunction(() => location.hash.includes("wrapper="));
  has(decodeURIComponent((await hash()).replaceAll("+", " ")), `wrapper=${first.function}`);
  equal(await shown(), wanted("--wrapper", first.function), "owners");
  for (const view of ["timeline", "leaks", "sizes", "flame", "threads", "bottom-up"]) {
    await go(page, `#/${view === "timeline" ? "consumed" : view}?wrapper=${encodeURIComponent(first.function)}`);
    equal(await page.locator(".problem").count(), 0, `${view} is shown`);
  }
});
await check("the server saves a report that says where it comes from", async () => {
  await go(page, "#/summary");
  await page.getByRole("button", { name: "Export" }).click();
  const link = page.getByRole("link", { name: "Save as one HTML file" });
  equal(await link.getAttribute("href"), "report?trace=0", "the link");
  const [saved, kind] = await page.evaluate(async () => {
    const answer = await fetch("report?trace=0");
    return [await answer.text(), answer.headers.get("content-disposition")];
  });
  equal(kind, 'attachment; filename="compiler.htz.html"', "it is saved");
  const path = join(shots, "saved.html");
  writeFileSync(path, saved);
  const report = await visit(`file://${path}`);
  await settled(report);
  const text = await report.locator(".provenance").innerText();
  for (const part of ["cc1plus", hostname(), "heaptrack 1.", new Date().toISOString().slice(0, 4)]) has(text, part);
  holds(!(await report.getByRole("button", { name: "Export" }).click().then(() => report.getByRole("link", { name: "Save as one HTML file" }).isVisible())), "a report has no server");
  await report.close();
});

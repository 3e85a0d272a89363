// The start of the page, from a server or as a report that contains its data.
import { render } from "preact";
import { carriedWorker, unpack } from "./carried";
import { start } from "./client";
import { recall } from "./store";
import { App } from "./ui/app";
import { applyTheme } from "./ui/header";
import type { ReportData } from "./work/report";

const main = async (): Promise<void> => {
  applyTheme(recall("theme", "auto"));
  const place = document.getElementById("page");
  if (!place) return;
  const data = document.getElementById("report-data");
  if (data) {
    const report = JSON.parse(await (await unpack(data)).text()) as ReportData;
    start(carriedWorker(), { report });
  } else {
    start("worker.js", { base: new URL(".", location.href).href });
  }
  place.replaceChildren();
  render(<App />, place);
};

void main().catch((error: unknown) => {
  const place = document.getElementById("page");
  if (place) place.textContent = `The page cannot start: ${String(error)}. A browser of the last two years is needed.`;
});

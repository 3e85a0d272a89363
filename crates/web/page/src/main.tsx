// The start of the page, from a server or as a report that contains its data.
import { render } from "preact";
import { start } from "./client";
import { recall } from "./store";
import { App } from "./ui/app";
import { applyTheme } from "./ui/header";
import type { ReportData } from "./work/report";

const unpack = async (text: string): Promise<string> => {
  const packed = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return await new Response(stream).text();
};

const main = async (): Promise<void> => {
  applyTheme(recall("theme", "auto"));
  const place = document.getElementById("page");
  if (!place) return;
  const data = document.getElementById("report-data");
  if (data) {
    // A page from disk cannot load a second script, so the worker is included as text.
    const script = document.getElementById("report-worker")?.textContent ?? "";
    const report = JSON.parse(await unpack(data.textContent ?? "")) as ReportData;
    start(URL.createObjectURL(new Blob([script], { type: "text/javascript" })), { report });
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

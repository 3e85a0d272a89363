// The start of the viewer: a page that is one file, carries the engine, and opens files that the user drops or chooses. A report also carries the first of them.
import { render } from "preact";
import { carriedWorker, decode, unpack } from "../carried";
import { start } from "../client";
import { recall } from "../store";
import { App } from "../ui/app";
import { extras } from "../ui/extras";
import { applyTheme } from "../ui/header";
import type { Carried } from "./source";
import { Chooser, Rules, Start, add, cancel } from "./start";

/** The trace of a report. The browser holds its bytes outside of the page's memory, and the element is removed. */
const carriedTrace = async ({ name, isPacked }: Carried): Promise<File> => {
  const element = document.getElementById("carried-trace");
  if (!element) throw new Error("the report has no trace");
  const bytes = isPacked ? await (await unpack(element)).blob() : decode(element);
  element.remove();
  return new File([bytes], name);
};

const main = async (): Promise<void> => {
  applyTheme(recall("theme", "auto"));
  const place = document.getElementById("page");
  const packed = document.getElementById("viewer-engine");
  if (!place || !packed) return;
  const engine = await (await unpack(packed)).arrayBuffer();
  packed.remove();
  const report = document.getElementById("carried-report");
  const carried = report ? (JSON.parse(await (await unpack(report)).text()) as Carried) : undefined;
  start(carriedWorker(), { engine, carried });
  Object.assign(extras, { start: () => <Start />, chooser: (onChosen: () => void) => <Chooser onChosen={onChosen} />, rules: (onChosen: () => void) => <Rules onChosen={onChosen} />, cancel });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event: DragEvent) => {
    event.preventDefault();
    void add([...(event.dataTransfer?.files ?? [])]);
  });
  if (carried) await add([await carriedTrace(carried)]);
  place.replaceChildren();
  render(<App />, place);
};

void main().catch((error: unknown) => {
  const place = document.getElementById("page");
  if (place) place.textContent = `The page cannot start: ${String(error)}. A browser of the last two years is needed.`;
});

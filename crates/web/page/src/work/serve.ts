// Answers the page's requests, in a worker. The main thread receives only what it shows.
import { diff, elsewhere } from "./changes";
import { begin, raw, suppress } from "./data";
import { overview } from "./overview";
import type { Message, Op, Requests } from "./protocol";
import { stackList } from "./selection";
import { Refusal, type Source } from "./source";
import { around, functionTable, functionWindow, keyOf } from "./table";
import { text } from "./text";
import { flameOf, place, toggle, tree, window } from "./trees";

const answers: { [O in Exclude<Op, "add" | "remove" | "rules">]: (args: Requests[O]["args"]) => Promise<Requests[O]["result"]> | Requests[O]["result"] } = {
  raw,
  overview,
  tree,
  window,
  toggle,
  place,
  flame: flameOf,
  functions: functionTable,
  functionWindow,
  neighbours: around,
  key: keyOf,
  stacks: stackList,
  diff,
  elsewhere,
  text,
  suppress,
};

/** `open` makes the source of answers from the page's first message. `more` has the answers to further requests, which only the viewer has. */
export const serve = <F>(open: (from: F) => Source, more: Record<string, (args: never) => unknown> = {}): void => {
  const all: Record<string, unknown> = { ...answers, ...more };
  self.onmessage = async ({ data }: MessageEvent<Message | { open: F }>) => {
    if ("open" in data) {
      begin(open(data.open));
      return;
    }
    const { id, op, args } = data;
    try {
      const result = await (all[op] as (args: unknown) => unknown)(args);
      self.postMessage({ id, result });
    } catch (error) {
      const sentence = error instanceof Refusal ? error.message : `The page made a mistake (${String(error)}). Please report it.`;
      self.postMessage({ id, error: sentence });
    }
  };
};

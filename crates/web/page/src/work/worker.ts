// The worker, which answers the page's requests. The main thread receives only what it shows.
import { diff, elsewhere } from "./changes";
import { begin, raw } from "./data";
import { overview } from "./overview";
import type { Message, Op, Requests } from "./protocol";
import { stackList } from "./selection";
import { Refusal, type open } from "./source";
import { around, functionTable, functionWindow, keyOf } from "./table";
import { text } from "./text";
import { flameOf, place, toggle, tree, window } from "./trees";

const answers: { [O in Op]: (args: Requests[O]["args"]) => Promise<Requests[O]["result"]> | Requests[O]["result"] } = {
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
};

self.onmessage = async ({ data }: MessageEvent<Message | { open: Parameters<typeof open>[0] }>) => {
  if ("open" in data) {
    begin(data.open);
    return;
  }
  const { id, op, args } = data;
  try {
    const result = await (answers[op] as (args: unknown) => unknown)(args);
    self.postMessage({ id, result });
  } catch (error) {
    const sentence = error instanceof Refusal ? error.message : `The page made a mistake (${String(error)}). Please report it.`;
    self.postMessage({ id, error: sentence });
  }
};

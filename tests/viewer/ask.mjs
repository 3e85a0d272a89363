// Answers questions with the module of js/, for tests/tests/viewer_wasm.rs: a line of JSON in, a line of JSON out.
import { createInterface } from "node:readline";
import { Heaptrack, Refused } from "../../js/dist/index.js";

const heaptrack = await Heaptrack.create();
const open = new Map();
const opened = async (path) => {
  if (!open.has(path)) open.set(path, await heaptrack.open(path));
  return open.get(path);
};
for await (const line of createInterface({ input: process.stdin })) {
  const { trace, view, words, base } = JSON.parse(line);
  const grouped = {};
  for (const [word, value] of words) (grouped[word] ??= []).push(value);
  try {
    console.log(JSON.stringify({ text: (await opened(trace)).text(view, grouped, base ? await opened(base) : undefined) }));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    console.log(JSON.stringify({ refused: error.message }));
  }
}

// What the page's worker computes while traces grow and get names, with answers that this file makes up. It needs no browser.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { check, equal } from "./harness.mjs";

const page = new URL("../../crates/web/page/", import.meta.url);
const { build } = createRequire(page)("esbuild");
const contents = ["stacks", "data", "profile", "source", "tree", "flame"].map((name) => `export * as ${name} from "./work/${name}";`).join("\n");
const { outputFiles } = await build({ stdin: { contents, resolveDir: fileURLToPath(new URL("src", page)) }, bundle: true, format: "esm", write: false });
const { stacks, data, profile, source, tree, flame } = await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);

/** The `stacks` answer (docs/views.md) for stacks of these functions, outermost first. A number stands for a frame without a name, at this offset. */
const answerOf = (...lists) => {
  const answer = { strings: ["/bin/app"], levels: { function: [], short: [], file: [], line: [], module: [], offset: [], class: [], inlined: [], namespace: [] }, nodes: { parent: [-1], level: [-1] }, stacks: { node: [], blamed: [] } };
  for (const list of lists) {
    let parent = 0;
    for (const one of list) {
      const name = typeof one === "number" ? null : answer.strings.push(one) - 1;
      const level = answer.levels.function.push(name) - 1;
      Object.entries({ short: name, file: null, line: null, module: 0, offset: typeof one === "number" ? one : level, class: "program", inlined: false, namespace: null }).forEach(([key, value]) => answer.levels[key].push(value));
      answer.nodes.level.push(level);
      parent = answer.nodes.parent.push(parent) - 1;
    }
    answer.stacks.node.push(parent);
    answer.stacks.blamed.push(parent);
  }
  return answer;
};

await check("a function has the same key after other frames got names", async () => {
  const keys = (...lists) => {
    const all = new stacks.Stacks(answerOf(...lists));
    const { ofLevel } = all.keys("function");
    return Object.fromEntries([...ofLevel.keys()].map((id) => [all.level(id).function, ofLevel[id]]));
  };
  const before = keys([1, "main"], [2, "main"], [3, "main"], ["parse"]);
  const after = keys(["read", "inlined", "main"], ["read", "inlined", "main"], ["read", "main"], ["parse"]);
  equal([after.main, after.parse], [before.main, before.parse], "keys");
  equal(new Set(Object.values(after)).size, 5, "each function has a key of its own, and so has a stack without levels");
});

await check("stacks and costs of a base that grows belong together", async () => {
  const traces = [{ version: 1, lists: [["main", "now"]] }, { version: 1, lists: [["main", "first"]] }];
  globalThis.fetch = async (address) => {
    const url = new URL(address);
    const { lists } = traces[Number(url.searchParams.get("trace"))];
    const answers = {
      status: () => ({ traces: traces.map(({ version }) => ({ state: "live", error: null, version })) }),
      stacks: () => answerOf(...lists),
      // The engine's names of functions as they were at first, because a trace may grow between two answers.
      pairs: () => ({ base: { function: ["main", "first"], place: [null, null], name: ["main\n", "first\n"] }, run: { function: ["main", "now"], place: [null, null], name: ["main\n", "now\n+"] } }),
      profile: () => ({ stack: [...lists.keys()], allocations: lists.map((_, index) => index + 1), live_bytes: lists.map(() => 0), totals: {}, range: { from_ns: 0, to_ns: 1 } }),
    };
    return { ok: true, json: async () => answers[url.pathname.slice("/api/".length)]() };
  };
  data.begin(source.open({ base: "http://none/" }));
  /** The innermost function of each stack of the base. */
  const base = async (query, version, base) => {
    const { stacks: all, profile: costs } = await data.dataOf({ trace: 0, query: `${query}compare=1`, version, base });
    return [...costs.stack].filter((stack) => stack > 0).map((stack) => all.level(all.whole(stack)[0] ?? all.nothing).function);
  };
  equal(await base("", 1, 1), ["first"], "at first");
  const { stacks: first } = await data.dataOf({ trace: 0, query: "compare=1", version: 1, base: 1 });
  const { ofLevel } = first.keys("function");
  equal([ofLevel[0] === ofLevel[2], ofLevel[1] === ofLevel[3]], [true, false], "main is one function, the others are two");
  traces[1] = { version: 2, lists: [...traces[1].lists, ["main", "second"]] };
  equal(await base("", 2, 2), ["first", "second"], "after a new version of both traces");
  traces[1] = { version: 3, lists: [...traces[1].lists, ["main", "third"]] };
  equal(await base("", 2, 3), ["first", "second", "third"], "after a new version of the base alone");
  traces[1] = { version: 3, lists: [...traces[1].lists, ["main", "fourth"]] };
  equal(await base("from=1&", 2, 3), ["first", "second", "third", "fourth"], "if the base has grown since the stacks were requested");
  const { stacks: last } = await data.dataOf({ trace: 0, query: "from=1&compare=1", version: 2, base: 3 });
  equal(new Set(last.keys("function").ofLevel).size, 7, "functions that were not there when the engine paired them have keys of their own");
});

await check("a flame graph tells small boxes from those that are too many", async () => {
  const count = 20;
  const numbers = Array.from({ length: count }, (_, index) => index);
  // Each stack has two levels of its own. The last one has a cost that is below the threshold.
  const paths = { start: Uint32Array.from({ length: count + 1 }, (_, stack) => stack * 2), keys: Uint32Array.from({ length: count * 2 }, (_, place) => place), levels: new Uint32Array(count * 2) };
  const costs = profile.read({ stack: numbers, allocations: numbers.map((stack) => (stack + 1 === count ? 1 : 10)), totals: {} });
  const { cut } = flame.flame(new tree.Tree(costs, paths, "top-down", String), "allocations", 2 / (count * 10), 15);
  equal(cut, { small: 1, beyond: count - 1 }, "boxes");
});

// What changed between a base and one or several runs.
//
// Given: questions with the same base. Gives back: every function's own cost before, and after in each run, the largest mean difference first. Which function
// is which: `pairing.ts`.
import { value } from "../costs";
import { dataOf, totalsOf } from "./data";
import { unit } from "./normal";
import { Runs } from "./pairing";
import type { Change, Requests } from "./protocol";
import { functionRow, functionsOf } from "./table";

const MOST = 2000;

export const diff = async ({ asks, look, cost, normal }: Requests["diff"]["args"]): Promise<Requests["diff"]["result"]> => {
  const known = new Map<string, Change>();
  const runs = new Runs();
  for (const [run, ask] of asks.entries()) {
    const data = await dataOf(ask);
    const { stacks } = data;
    const totals = totalsOf(data);
    const per = unit(normal, totals.sums, data.answer.range, value(totals.sums, cost));
    const { names } = stacks.keys(look.merge);
    const nameOf = runs.add(names);
    for (const entry of await functionsOf(ask, look)) {
      const name = nameOf(names[entry.key] ?? "");
      const now = value(entry.self.sums, cost) / per;
      const before = entry.self.base ? value(entry.self.base, cost) / per : 0;
      let change = known.get(name);
      if (!change) {
        change = { level: stacks.shown(entry.level), name, row: undefined, before, after: asks.map(() => 0) };
        known.set(name, change);
      }
      if (run === 0) change.row = { ...functionRow(stacks, entry), sums: entry.self.sums, base: entry.self.base };
      change.after[run] = now;
    }
  }
  const mean = ({ before, after }: Change): number => Math.abs(after.reduce((sum, amount) => sum + amount - before, 0) / after.length);
  const list = [...known.values()].filter(({ before, after }) => after.some((amount) => amount !== before));
  return list.sort((a, b) => mean(b) - mean(a) || (a.name < b.name ? -1 : 1)).slice(0, MOST);
};

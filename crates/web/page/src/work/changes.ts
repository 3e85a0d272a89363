// What changed between a base and one or several runs.
//
// Receives: queries with the same base. Returns: the functions whose own cost differs between the base and a run, each with this cost in the base and in every
// run. The largest mean difference comes first. The engine decides which functions are the same (`pairing.ts`).
import { value } from "../costs";
import { dataOf, pairsOf, totalsOf } from "./data";
import { unit } from "./normal";
import type { Columns } from "./profile";
import type { Change, Elsewhere, Measure, Requests } from "./protocol";
import type { Paths } from "./stacks";
import { functionRow, functionsOf } from "./table";

const MOST = 2000;

export const diff = async ({ asks, look, cost, normal }: Requests["diff"]["args"]): Promise<Requests["diff"]["result"]> => {
  const known = new Map<string, Change>();
  for (const [run, ask] of asks.entries()) {
    const data = await dataOf(ask);
    const { stacks } = data;
    const totals = totalsOf(data);
    const per = unit(normal, totals.sums, data.answer.range, value(totals.sums, cost));
    // Functions that the base does not have are paired with those of earlier runs.
    const pairs = run > 0 ? await pairsOf(ask, asks.slice(0, run).map((earlier) => earlier.trace)) : undefined;
    for (const entry of await functionsOf(ask, look)) {
      const name = stacks.nameOf(entry.level, look.merge, pairs);
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

/** For the key of each function that is the innermost one of a stack: the most bytes that a single such stack held at any time. */
const ownPeaks = (columns: Columns | undefined, paths: Paths): Map<number, number> => {
  const peaks = new Map<number, number>();
  columns?.stack.forEach((stack, index) => {
    const end = paths.start[stack + 1] ?? 0;
    if (end === (paths.start[stack] ?? 0)) return;
    const key = paths.keys[end - 1] ?? 0;
    peaks.set(key, Math.max(peaks.get(key) ?? 0, columns.own_peak_bytes?.[index] ?? 0));
  });
  return peaks;
};

/** Functions that changed not in `cost` but in another measure, each with the measure in which it changed most relative to the total of that measure. */
export const elsewhere = async ({ ask, look, cost, measures }: Requests["elsewhere"]["args"]): Promise<Requests["elsewhere"]["result"]> => {
  const data = await dataOf(ask);
  const { stacks, answer } = data;
  const paths = stacks.look(look);
  const now = ownPeaks((answer.profile ?? answer) as Columns, paths);
  const before = ownPeaks(answer.base, paths);
  const totals = totalsOf(data);
  const most = (sums: Float64Array | undefined, measure: Measure): number => value(sums ?? [], measure === "own_peak" ? "peak_bytes" : measure);
  const found: (Elsewhere & { share: number })[] = [];
  for (const entry of await functionsOf(ask, look)) {
    const { sums, base } = entry.self;
    const amounts = (measure: Measure): [number, number] =>
      measure === "own_peak" ? [before.get(entry.key) ?? 0, now.get(entry.key) ?? 0] : [base ? value(base, measure) : 0, value(sums, measure)];
    if (base === undefined || value(sums, cost) !== value(base, cost)) continue;
    const changes = measures
      .map((measure) => ({ measure, pair: amounts(measure), all: Math.max(most(totals.sums, measure), most(totals.base, measure), 1) }))
      .map((one) => ({ ...one, share: Math.abs(one.pair[1] - one.pair[0]) / one.all }))
      .sort((a, b) => b.share - a.share);
    const [first] = changes;
    if (!first || first.share === 0) continue;
    const row = { ...functionRow(stacks, entry), sums, base };
    found.push({ level: stacks.shown(entry.level), name: stacks.nameOf(entry.level, look.merge), row, measure: first.measure, before: first.pair[0], after: first.pair[1], share: first.share });
  }
  return found.sort((a, b) => b.share - a.share || (a.name < b.name ? -1 : 1)).slice(0, MOST);
};

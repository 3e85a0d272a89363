// The lists of the first screen: costs by the user's own code.
//
// Receives: the costs of stacks. Returns: for each blamed line its sums and its most expensive stack. The engine chooses the level to blame (docs/blame.md).
import { type Cost, WIDTH, value } from "../costs";
import { type Profile, add } from "./profile";
import { type Stacks, functionName } from "./stacks";

export type Blamed = {
  key: number;
  level: number;
  sums: Float64Array;
  base: Float64Array | undefined;
  rows: number[];
};

/** The level to blame for a stack. Undefined if the stack has no levels. */
const blamedLevel = (stacks: Stacks, stack: number): number | undefined => stacks.owner(stack);

/** A key that all stacks with the same blamed line share. Undefined if the stack has no levels. */
export const blamedKey = (stacks: Stacks, stack: number): number | undefined => {
  const level = blamedLevel(stacks, stack);
  return level === undefined ? undefined : stacks.keys("line").ofLevel[level];
};

/** The live bytes of each blamed function. */
export const liveByFunction = (list: Blamed[], stacks: Stacks): Map<string, number> => {
  const live = new Map<string, number>();
  for (const { level, sums } of list) {
    const name = functionName(stacks.level(level));
    live.set(name, (live.get(name) ?? 0) + value(sums, "live_bytes"));
  }
  return live;
};

export const blame = (profile: Profile, stacks: Stacks): Blamed[] => {
  const { ofLevel } = stacks.keys("line");
  const known = new Map<number, Blamed>();
  for (let row = 0; row < profile.stack.length; row++) {
    const stack = profile.stack[row] ?? 0;
    const level = blamedLevel(stacks, stack);
    if (level === undefined) continue;
    const key = ofLevel[level] ?? 0;
    let entry = known.get(key);
    if (!entry) {
      entry = { key, level, sums: new Float64Array(WIDTH), base: profile.base && new Float64Array(WIDTH), rows: [] };
      known.set(key, entry);
    }
    add(entry.sums, profile.sums, row);
    if (entry.base && profile.base) add(entry.base, profile.base, row);
    entry.rows.push(row);
  }
  return [...known.values()];
};

/** Returns the one of these rows whose stack has the highest cost. */
export const dearest = (profile: Profile, rows: ArrayLike<number>, cost: Cost): number | undefined => {
  let best: number | undefined;
  let most = -1;
  for (let index = 0; index < rows.length; index++) {
    const row = rows[index] ?? 0;
    const amount = value(profile.sums, cost, row * WIDTH);
    if (amount > most) {
      most = amount;
      best = row;
    }
  }
  return best;
};

export const ranked = (list: Blamed[], cost: Cost): Blamed[] => {
  const weight = (entry: Blamed): number => (entry.base ? Math.abs(value(entry.sums, cost) - value(entry.base, cost)) : value(entry.sums, cost));
  return list.filter((entry) => weight(entry) > 0).sort((a, b) => weight(b) - weight(a) || a.level - b.level);
};

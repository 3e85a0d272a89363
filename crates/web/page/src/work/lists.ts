// The lists of the first screen: costs blamed on the user's own code.
//
// Given: costs of stacks. Gives back: per line that is to blame its sums and its dearest stack. A stack on which nothing is the user's own is
// blamed on its innermost level.
import { type Cost, WIDTH, value } from "../costs";
import { type Profile, add } from "./profile";
import type { Stacks } from "./stacks";

export type Blamed = {
  key: number;
  level: number;
  sums: Float64Array;
  base: Float64Array | undefined;
  rows: number[];
};

export const blame = (profile: Profile, stacks: Stacks): Blamed[] => {
  const { ofLevel } = stacks.keys("line");
  const known = new Map<number, Blamed>();
  for (let row = 0; row < profile.stack.length; row++) {
    const stack = profile.stack[row] ?? 0;
    const level = stacks.blamed(stack) ?? stacks.whole(stack)[0];
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

/** The row of the stack that costs most. */
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
  return list.filter((entry) => weight(entry) > 0).sort((a, b) => weight(b) - weight(a) || a.key - b.key);
};

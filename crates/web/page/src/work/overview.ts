// The data of the first screen: totals, and lists by the user's own code.
import { WIDTH, value } from "../costs";
import { type Data, dataOf, named, totalsOf } from "./data";
import { Kept } from "./kept";
import { type Blamed, blame, dearest, liveByFunction, ranked } from "./lists";
import type { Ask, Entry, Overview, Requests } from "./protocol";
import type { Level, Stacks } from "./stacks";

const allBlamed = new Kept<Blamed[]>();

export const blamedOf = (ask: Ask, { profile, stacks }: Data): Promise<Blamed[]> => allBlamed.get(named(ask), async () => blame(profile, stacks));

export const overview = async ({ ask, costs, limit }: Requests["overview"]["args"]): Promise<Overview> => {
  const data = await dataOf(ask);
  const { stacks, profile } = data;
  const list = await blamedOf(ask, data);
  const lists: Record<string, Entry[]> = {};
  const counts: Record<string, number> = {};
  for (const cost of costs) {
    const order = ranked(list, cost);
    counts[cost] = order.length;
    lists[cost] = order.slice(0, limit).map((entry) => {
      const row = dearest(profile, entry.rows, cost);
      const via = row === undefined ? [] : inside(stacks, profile.stack[row] ?? 0);
      return { level: stacks.shown(entry.level), key: entry.key, sums: entry.sums, base: entry.base, via, stacks: entry.rows.length };
    });
  }
  let mine = 0;
  let all = 0;
  for (let row = 0; row < profile.stack.length; row++) {
    const amount = value(profile.sums, "allocations", row * WIDTH) + value(profile.sums, "live_allocations", row * WIDTH);
    all += amount;
    if (stacks.blamed(profile.stack[row] ?? 0) !== undefined) mine += amount;
  }
  const wrappers = stacks.answer.wrappers ?? [];
  return { totals: totalsOf(data), lists, counts, mine: all > 0 ? mine / all : 1, live: liveByFunction(list, stacks), wrappers };
};

/** The levels that are more inner than the blamed one, innermost first. */
const inside = (stacks: Stacks, stack: number): Level[] => {
  const blamed = stacks.blamed(stack);
  const levels = stacks.whole(stack);
  const end = blamed === undefined ? 0 : levels.indexOf(blamed);
  return levels.slice(0, Math.max(0, end)).map((id) => stacks.level(id));
};

// The stacks behind what is selected, each with its costs and all its levels.
import { WIDTH, value } from "../costs";
import { dataOf } from "./data";
import { neighbours } from "./functions";
import { blamedOf } from "./overview";
import type { Ask, Requests, Selection, Stack } from "./protocol";
import type { Look } from "./stacks";
import { find } from "./tree";
import { treeOf } from "./trees";

const rowsOf = async (ask: Ask, look: Look, selection: Selection): Promise<number[]> => {
  const data = await dataOf(ask);
  const { stacks, profile } = data;
  switch (selection.of) {
    case "tree": {
      const made = await treeOf(ask, look, selection.direction);
      return [...(find(made, selection.path, { cost: "peak_bytes", ascending: false })?.rows ?? [])];
    }
    case "function":
      return neighbours(profile, stacks.look(look), selection.key, (id) => stacks.level(id)).rows;
    case "blamed":
      return (await blamedOf(ask, data)).find((entry) => entry.key === selection.key)?.rows ?? [];
    case "site":
      return [...profile.stack.keys()].filter((row) => profile.stack[row] === selection.stack);
    case "all":
      return [...profile.stack.keys()];
  }
};

export const stackList = async ({ ask, look, selection, cost, from: first, to }: Requests["stacks"]["args"]): Promise<Requests["stacks"]["result"]> => {
  const { stacks, profile, answer } = await dataOf(ask);
  const rows = await rowsOf(ask, look, selection);
  const weight = (row: number): number =>
    profile.base
      ? Math.abs(value(profile.sums, cost, row * WIDTH) - value(profile.base, cost, row * WIDTH))
      : value(profile.sums, cost, row * WIDTH);
  rows.sort((a, b) => weight(b) - weight(a) || a - b);
  const sums = new Float64Array(WIDTH);
  for (const row of rows) for (let column = 0; column < WIDTH; column++) sums[column] = (sums[column] ?? 0) + (profile.sums[row * WIDTH + column] ?? 0);
  const columns = (answer.profile ?? answer) as unknown as Record<string, number[]>;
  const places = new Map((columns.stack ?? []).map((stack, index) => [stack, index]));
  const list: Stack[] = rows.slice(first, to).map((row) => {
    const stack = profile.stack[row] ?? 0;
    const levels = stacks.whole(stack);
    const index = places.get(stack) ?? -1;
    const blamed = stacks.blamed(stack);
    return {
      stack,
      sums: profile.sums.slice(row * WIDTH, (row + 1) * WIDTH),
      base: profile.base?.slice(row * WIDTH, (row + 1) * WIDTH),
      own: { bytes: columns.own_peak_bytes?.[index] ?? 0, time_ns: columns.own_peak_time_ns?.[index] ?? 0, largest: columns.size_max?.[index] ?? 0 },
      levels: levels.map((id) => stacks.level(id)),
      blamed: blamed === undefined ? -1 : levels.indexOf(blamed),
    };
  });
  return { count: rows.length, sums, stacks: list };
};

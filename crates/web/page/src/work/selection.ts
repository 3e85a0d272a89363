// The stacks of the selection, each with its costs and all its levels.
//
// Must hold: the sums belong to the current query, so that the details never show older numbers.
import { WIDTH, value } from "../costs";
import { type Data, dataOf, totalsOf } from "./data";
import { blamedKey } from "./lists";
import { blamedOf } from "./overview";
import { add } from "./profile";
import type { Ask, Requests, Selection, Stack } from "./protocol";
import type { Look } from "./stacks";
import { find } from "./tree";
import { treeOf } from "./trees";

/** The rows of the selected stacks. `own`: those of them that end in the selection; undefined if no view shows their sums. */
type Chosen = { rows: number[]; own?: number[] };

const ofTree = async (ask: Ask, look: Look, { direction, path }: Extract<Selection, { of: "tree" }>): Promise<Chosen> => {
  const made = await treeOf(ask, look, direction);
  const node = find(made, path, { cost: "peak_bytes", ascending: false });
  const rows = [...(node?.rows ?? [])];
  if (direction === "bottom-up") return { rows };
  const { start } = made.paths;
  const length = (row: number): number => {
    const stack = made.profile.stack[row] ?? 0;
    return (start[stack + 1] ?? 0) - (start[stack] ?? 0);
  };
  return { rows, own: rows.filter((row) => length(row) === node?.depth) };
};

const ofFunction = ({ stacks, profile }: Data, look: Look, key: number): Required<Chosen> => {
  const { keys, start } = stacks.look(look);
  const path = (row: number): Uint32Array => keys.subarray(start[profile.stack[row] ?? 0], start[(profile.stack[row] ?? 0) + 1]);
  const rows = [...profile.stack.keys()].filter((row) => path(row).includes(key));
  return { rows, own: rows.filter((row) => path(row).at(-1) === key) };
};

/**
 * The rows of all stacks with the same blamed line as `stack`: only the suppressed ones if `suppressed` is true, otherwise only the others. `isOff`: suppressions are
 * not used.
 */
const ofSite = ({ stacks, profile }: Data, { stack, suppressed }: Extract<Selection, { of: "site" }>, isOff: boolean): number[] => {
  const key = blamedKey(stacks, stack);
  const known = stacks.answer.stacks.suppressed;
  const isSuppressed = (other: number): boolean => !isOff && (known?.[other] ?? -1) >= 0;
  return [...profile.stack.keys()].filter((row) => {
    const other = profile.stack[row] ?? 0;
    return blamedKey(stacks, other) === key && isSuppressed(other) === suppressed;
  });
};

const chosen = async (ask: Ask, look: Look, selection: Selection): Promise<Chosen> => {
  const data = await dataOf(ask);
  switch (selection.of) {
    case "tree":
      return ofTree(ask, look, selection);
    case "function":
      return ofFunction(data, look, selection.key);
    case "self":
      return { rows: ofFunction(data, look, selection.key).own };
    case "blamed":
      return { rows: (await blamedOf(ask, data)).find((entry) => entry.key === selection.key)?.rows ?? [] };
    case "site":
      return { rows: ofSite(data, selection, new URLSearchParams(ask.query).get("suppressions") === "off") };
    case "all":
      return { rows: [...data.profile.stack.keys()] };
  }
};

const summed = (table: Float64Array, rows: number[]): Float64Array => {
  const sums = new Float64Array(WIDTH);
  for (const row of rows) add(sums, table, row);
  return sums;
};

export const stackList = async ({ ask, look, selection, cost, from: first, to }: Requests["stacks"]["args"]): Promise<Requests["stacks"]["result"]> => {
  const data = await dataOf(ask);
  const { stacks, profile, answer } = data;
  const { rows: found, own } = await chosen(ask, look, selection);
  const rows = [...found];
  const weight = (row: number): number =>
    profile.base
      ? Math.abs(value(profile.sums, cost, row * WIDTH) - value(profile.base, cost, row * WIDTH))
      : value(profile.sums, cost, row * WIDTH);
  rows.sort((a, b) => weight(b) - weight(a) || a - b);
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
  return {
    count: rows.length,
    sums: summed(profile.sums, rows),
    base: profile.base && summed(profile.base, rows),
    self: own && summed(profile.sums, own),
    totals: totalsOf(data),
    stacks: list,
  };
};

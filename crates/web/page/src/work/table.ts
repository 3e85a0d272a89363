// The table of functions, and the callers, callees and lines of one function.
import { value } from "../costs";
import { dataOf, named, totalsOf } from "./data";
import { type Function, functions, neighbours } from "./functions";
import { Kept } from "./kept";
import type { Ask, Requests, Row } from "./protocol";
import { type Level, type Look, type Stacks, keyName, labelOf, lookName, matcher } from "./stacks";

const allFunctions = new Kept<Function[]>();
/** The functions of the latest `functionTable`, of which `functionWindow` returns the visible part. */
let table: { functions: Function[]; stacks: Stacks } | undefined;
/** The number of requests for a table. An answer that had to wait for the server must not replace the table of a later request. */
let requests = 0;

export const functionsOf = (ask: Ask, look: Look): Promise<Function[]> =>
  allFunctions.get(`${named(ask)} ${lookName(look)}`, async () => {
    const { stacks, profile } = await dataOf(ask);
    return functions(profile, stacks.look(look));
  });

export const functionTable = async ({ ask, look, sort, self, filter }: Requests["functions"]["args"]): Promise<Requests["functions"]["result"]> => {
  requests += 1;
  const request = requests;
  const data = await dataOf(ask);
  const { stacks } = data;
  const test = filter ? matcher(filter) : undefined;
  const list = (await functionsOf(ask, look)).filter((entry) => !test || test(stacks.level(entry.level)));
  const sign = sort.ascending ? 1 : -1;
  const { cost } = sort;
  if (cost === "name") list.sort((a, b) => sign * labelOf(stacks.level(a.level)).localeCompare(labelOf(stacks.level(b.level))));
  else {
    const weight = (entry: Function): number => {
      const side = self ? entry.self : entry.inclusive;
      return side.base ? Math.abs(value(side.sums, cost) - value(side.base, cost)) : value(side.sums, cost);
    };
    const both = (entry: Function): number => value((self ? entry.inclusive : entry.self).sums, cost);
    list.sort((a, b) => sign * (weight(a) - weight(b)) || both(b) - both(a) || a.level - b.level);
  }
  if (request === requests) table = { functions: list, stacks };
  return { count: list.length, totals: totalsOf(data) };
};

export const functionRow = (stacks: Stacks, entry: Function): Row => ({
  level: stacks.shown(entry.level),
  key: entry.key,
  sums: entry.inclusive.sums,
  base: entry.inclusive.base,
  self: entry.self.sums,
});

export const functionWindow = ({ from: first, to }: Requests["functionWindow"]["args"]): Row[] => {
  const shownTable = table;
  return shownTable ? shownTable.functions.slice(first, to).map((entry) => functionRow(shownTable.stacks, entry)) : [];
};

export const around = async ({ ask, look, key, cost }: Requests["neighbours"]["args"]): Promise<Requests["neighbours"]["result"]> => {
  const { stacks, profile } = await dataOf(ask);
  const subject = (await functionsOf(ask, look)).find((entry) => entry.key === key);
  if (!subject) return undefined;
  const found = neighbours(profile, stacks.look(look), key, (id) => stacks.level(id));
  const order = (list: Function[]): Row[] =>
    list.sort((a, b) => value(b.inclusive.sums, cost) - value(a.inclusive.sums, cost) || a.level - b.level).map((entry) => functionRow(stacks, entry));
  const lines = found.lines.sort((a, b) => value(b.inclusive.sums, cost) - value(a.inclusive.sums, cost) || a.line - b.line);
  return {
    subject: functionRow(stacks, subject),
    callers: order(found.callers),
    callees: order(found.callees),
    lines: lines.map(({ file, line, inclusive, self }) => ({ file, line, sums: inclusive.sums, base: inclusive.base, self: self.sums })),
  };
};

/** Finds a function by its full or short name, and returns its key. A file may follow the name after a tab. Then a function in this file is preferred. */
export const keyOf = async ({ ask, look, name: given }: Requests["key"]["args"]): Promise<number | undefined> => {
  const { stacks } = await dataOf(ask);
  const list = await functionsOf(ask, look);
  const [name, file] = given.split("\t");
  const isIt = ({ function: full, short }: Level): boolean => full === name || short === name;
  if (file !== undefined) {
    const { ofLevel } = stacks.keys(look.merge);
    const level = [...ofLevel.keys()].find((id) => stacks.level(id).file === file && isIt(stacks.level(id)));
    const key = level === undefined ? undefined : ofLevel[level];
    if (list.some((entry) => entry.key === key)) return key;
  }
  const exact = list.find((entry) => keyName(stacks.level(entry.level), look.merge) === name);
  return (exact ?? list.find((entry) => isIt(stacks.level(entry.level))))?.key;
};

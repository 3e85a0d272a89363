// Exports what is shown: as CSV, JSON, or folded stacks for other tools.
import { SUMS, WIDTH, value } from "../costs";
import { dataOf } from "./data";
import type { Requests } from "./protocol";
import { type Level, labelOf } from "./stacks";
import { functionsOf } from "./table";

export const text = async ({ ask, look, format, cost }: Requests["text"]["args"]): Promise<string> => {
  const { stacks, profile } = await dataOf(ask);
  if (format === "csv") {
    const quoted = (word: string): string => (/[",\n]/.test(word) ? `"${word.replaceAll('"', '""')}"` : word);
    const lines = [["function", "file", "line", "module", ...SUMS, ...SUMS.map((name) => `self_${name}`)].join(",")];
    for (const entry of await functionsOf(ask, look)) {
      const level = stacks.level(entry.level);
      const words = [level.function ?? "", level.file ?? "", String(level.line ?? ""), level.module ?? ""];
      lines.push([...words.map(quoted), ...entry.inclusive.sums, ...entry.self.sums].join(","));
    }
    return `${lines.join("\n")}\n`;
  }
  const list = [...profile.stack.keys()].map((row) => ({ row, amount: value(profile.sums, cost, row * WIDTH) })).filter(({ amount }) => amount !== 0);
  list.sort((a, b) => b.amount - a.amount || a.row - b.row);
  const paths = stacks.look(look);
  const namesOf = (row: number): Level[] => {
    const stack = profile.stack[row] ?? 0;
    return [...paths.levels.slice(paths.start[stack], paths.start[stack + 1])].map((id) => stacks.level(id));
  };
  if (format === "folded") {
    const clean = (word: string): string => word.replaceAll(";", ":").replaceAll("\n", " ");
    return `${list.map(({ row, amount }) => `${namesOf(row).map((level) => clean(labelOf(level) || "[unknown]")).join(";")} ${amount}`).join("\n")}\n`;
  }
  const entries = list.map(({ row }) => ({
    costs: Object.fromEntries(SUMS.map((name, index) => [name, profile.sums[row * WIDTH + index]])),
    frames: namesOf(row).reverse(),
  }));
  return `${JSON.stringify({ query: ask.query, cost, stacks: entries }, null, 1)}\n`;
};

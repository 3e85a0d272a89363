// The costs of stacks, as one table of numbers.
//
// Receives: the `profile` answer. Returns: rows of a stack and its sums; in a comparison, a second table of the same width for the base.
import { SUMS, WIDTH } from "../costs";

export type Columns = { stack: number[] } & Record<string, number[]>;
export type ProfileAnswer = {
  range?: { from_ns: number; to_ns: number };
  totals: Record<string, number>;
  profile?: Columns;
  base?: Columns;
  base_range?: { from_ns: number; to_ns: number };
} & Record<string, unknown>;

export type Profile = {
  /** The stack of each row. */
  stack: Uint32Array;
  /** Row r's sums begin at r * WIDTH. */
  sums: Float64Array;
  /** The sums of the base, with the same rows. Undefined if nothing is compared. */
  base: Float64Array | undefined;
};

/** `suppressed`: for each stack the index of the suppression that matches it, or -1. `keep`: for each stack 1 if it is wanted; undefined if all are. */
export const read = (answer: ProfileAnswer, suppressed: number[] | undefined, keep?: Uint8Array): Profile => {
  const now = (answer.profile ?? answer) as Columns;
  const base = answer.base;
  const rows = new Map<number, number>();
  const place = (stack: number): number => {
    let row = rows.get(stack);
    if (row === undefined) {
      row = rows.size;
      rows.set(stack, row);
    }
    return row;
  };
  const wanted = (stack: number): boolean => !keep || keep[stack] === 1;
  const fill = (columns: Columns | undefined): [number, number][] => {
    const pairs: [number, number][] = [];
    columns?.stack.forEach((stack, index) => {
      if (wanted(stack)) pairs.push([place(stack), index]);
    });
    return pairs;
  };
  const nowPairs = fill(now);
  const basePairs = fill(base);
  const table = (columns: Columns | undefined, pairs: [number, number][]): Float64Array => {
    const sums = new Float64Array(rows.size * WIDTH);
    SUMS.forEach((name, place) => {
      const leaked = name === "leaked_bytes" || name === "leaked_allocations";
      const column = leaked ? columns?.[name.replace("leaked", "live")] : columns?.[name];
      if (!column) return;
      if (leaked && suppressed) {
        for (const [row, index] of pairs) {
          const isLeak = (suppressed[columns?.stack[index] ?? 0] ?? -1) < 0;
          if (isLeak) sums[row * WIDTH + place] = column[index] ?? 0;
        }
        return;
      }
      for (const [row, index] of pairs) sums[row * WIDTH + place] = column[index] ?? 0;
    });
    return sums;
  };
  return {
    stack: Uint32Array.from(rows.keys()),
    sums: table(now, nowPairs),
    base: base ? table(base, basePairs) : undefined,
  };
};

export const total = (table: Float64Array): Float64Array => {
  const sum = new Float64Array(WIDTH);
  for (let from = 0; from < table.length; from += WIDTH) {
    for (let place = 0; place < WIDTH; place++) sum[place] = (sum[place] ?? 0) + (table[from + place] ?? 0);
  }
  return sum;
};

/** Adds one row of `table` to `sum`. */
export const add = (sum: Float64Array, table: Float64Array, row: number): void => {
  const from = row * WIDTH;
  for (let place = 0; place < WIDTH; place++) sum[place] = (sum[place] ?? 0) + (table[from + place] ?? 0);
};

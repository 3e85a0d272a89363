// Functions with their own and their inclusive costs; the callers, callees and lines of one function.
//
// Must hold: a stack that contains a function, a caller, a callee or a line several times counts only once for it.
import { WIDTH } from "../costs";
import { type Profile, add } from "./profile";
import type { Level, Paths } from "./stacks";

export type Sums = { sums: Float64Array; base: Float64Array | undefined };
export type Function = { key: number; level: number; inclusive: Sums; self: Sums };

const empty = (profile: Profile): Sums => ({ sums: new Float64Array(WIDTH), base: profile.base && new Float64Array(WIDTH) });

const book = (to: Sums, profile: Profile, row: number): void => {
  add(to.sums, profile.sums, row);
  if (to.base && profile.base) add(to.base, profile.base, row);
};

export const functions = (profile: Profile, paths: Paths): Function[] => {
  const known = new Map<number, Function>();
  const seen = new Map<number, number>();
  for (let row = 0; row < profile.stack.length; row++) {
    const stack = profile.stack[row] ?? 0;
    const from = paths.start[stack] ?? 0;
    const to = paths.start[stack + 1] ?? 0;
    for (let place = from; place < to; place++) {
      const key = paths.keys[place] ?? 0;
      let entry = known.get(key);
      if (!entry) {
        entry = { key, level: paths.levels[place] ?? 0, inclusive: empty(profile), self: empty(profile) };
        known.set(key, entry);
      }
      if (place + 1 === to) book(entry.self, profile, row);
      if (seen.get(key) === row) continue;
      seen.set(key, row);
      book(entry.inclusive, profile, row);
    }
  }
  return [...known.values()];
};

export type Line = { file: string; line: number; inclusive: Sums; self: Sums };
export type Neighbours = { callers: Function[]; callees: Function[]; lines: Line[]; rows: number[] };

export const neighbours = (profile: Profile, paths: Paths, wanted: number, levelOf: (id: number) => Level): Neighbours => {
  const callers = new Map<number, Function>();
  const callees = new Map<number, Function>();
  const lines = new Map<string, Line>();
  const rows: number[] = [];
  const enter = (map: Map<number, Function>, place: number): Function => {
    const key = paths.keys[place] ?? 0;
    let entry = map.get(key);
    if (!entry) {
      entry = { key, level: paths.levels[place] ?? 0, inclusive: empty(profile), self: empty(profile) };
      map.set(key, entry);
    }
    return entry;
  };
  for (let row = 0; row < profile.stack.length; row++) {
    const stack = profile.stack[row] ?? 0;
    const from = paths.start[stack] ?? 0;
    const to = paths.start[stack + 1] ?? 0;
    const seen = new Set<unknown>();
    const once = (entry: object): boolean => !seen.has(entry) && seen.add(entry) !== undefined;
    let isOn = false;
    for (let place = from; place < to; place++) {
      if (paths.keys[place] !== wanted) continue;
      isOn = true;
      if (place > from) {
        const caller = enter(callers, place - 1);
        if (once(caller)) book(caller.inclusive, profile, row);
      }
      if (place + 1 < to) {
        const callee = enter(callees, place + 1);
        if (once(callee)) book(callee.inclusive, profile, row);
        if (place + 2 === to) book(callee.self, profile, row);
      }
      const { file, line } = levelOf(paths.levels[place] ?? 0);
      const name = `${file ?? ""}:${line ?? 0}`;
      let entry = lines.get(name);
      if (!entry) {
        entry = { file: file ?? "", line: line ?? 0, inclusive: empty(profile), self: empty(profile) };
        lines.set(name, entry);
      }
      if (once(entry)) book(entry.inclusive, profile, row);
      if (place + 1 === to) book(entry.self, profile, row);
    }
    if (isOn) rows.push(row);
  }
  return { callers: [...callers.values()], callees: [...callees.values()], lines: [...lines.values()], rows };
};

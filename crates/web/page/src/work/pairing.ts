// Pairs the functions of two traces by name, and by file where the name is ambiguous (docs/decisions/0031).
//
// Receives: the levels of both traces. Returns: a name for each level, which is equal for the same function. Must hold: the rule is that of
// `crates/analysis/src/pairing.rs`. Two files of one trace are never merged.
import type { StacksAnswer } from "./stacks";

/** Null if the file is not known. */
export type File = string | null;
type Files = Map<string, Set<File>>;

/** Separates a function from its file in a name: `IN_BASE` if the base has the function in this file, `ONLY_HERE` if only this trace has it. */
const IN_BASE = "\n";
const ONLY_HERE = "\n+";

/** A name for each level. The levels from `border` on belong to the base. */
export const pairedNames = (answer: StacksAnswer, border: number): string[] => {
  const { strings, levels } = answer;
  const count = levels.function.length;
  const text = (index: number | null | undefined): string | null => (index === null || index === undefined ? null : (strings[index] ?? null));
  const filesOf = (from: number, to: number): Files => {
    const found: Files = new Map();
    for (let level = from; level < to; level++) {
      const name = text(levels.function[level]);
      if (name === null) continue;
      const files = found.get(name) ?? new Set();
      found.set(name, files.add(text(levels.file[level])));
    }
    // If the function has one file, a level without a file belongs to it.
    for (const files of found.values()) if (files.size === 2) files.delete(null);
    return found;
  };
  const here = filesOf(0, border);
  const base = filesOf(border, count);
  const same = new Map([...here].map(([name, files]) => [name, pairs(files, base.get(name) ?? new Set())]));
  const nameOf = (level: number): string => {
    const name = text(levels.function[level]);
    if (name === null) return namelessIn(text(levels.module[level]));
    const files = (level < border ? here : base).get(name) ?? new Set();
    const [only] = files;
    const file = files.size === 1 && only !== undefined ? only : text(levels.file[level]);
    if (level >= border) return `${name}${IN_BASE}${file ?? ""}`;
    const other = same.get(name)?.get(file);
    return other === undefined ? `${name}${ONLY_HERE}${file ?? ""}` : `${name}${IN_BASE}${other ?? ""}`;
  };
  // Most levels are lines of functions that already have a name.
  const known = new Map<number, string>();
  return Array.from({ length: count }, (_, level) => {
    const fn = levels.function[level] ?? -1;
    if (fn < 0) return nameOf(level);
    const place = fn * (strings.length + 1) + (levels.file[level] ?? strings.length);
    const name = known.get(place) ?? nameOf(level);
    known.set(place, name);
    return name;
  });
};

/** Code without a name is one function per module, because addresses mean nothing in another build. */
export const namelessIn = (module: string | null): string => `\n${module === null ? "?" : module.slice(module.lastIndexOf("/") + 1)}`;

/** Pairs the files in which two traces have functions of the same name. */
export const pairs = (one: Set<File>, other: Set<File>): Map<File, File> => {
  const found = new Map<File, File>();
  const [first] = one;
  const [second] = other;
  if (one.size === 1 && other.size === 1 && first !== undefined && second !== undefined) return found.set(first, second);
  for (const file of one) if (other.has(file)) found.set(file, file);
  const rest = (files: Set<File>): Set<string> => new Set([...files].filter((file): file is string => file !== null && !found.has(file)));
  const left = rest(one);
  const right = rest(other);
  const longest = (files: Set<string>): number => Math.max(0, ...[...files].map((file) => file.split("/").length));
  for (let length = Math.min(longest(left), longest(right)); length > 0; length--) {
    const lefts = byTail(left, length);
    const rights = byTail(right, length);
    for (const [tail, [mine, ...more]] of lefts) {
      const [theirs, ...others] = rights.get(tail) ?? [];
      // If several files fit equally well, none of them is paired.
      if (mine === undefined || theirs === undefined || more.length + others.length > 0) continue;
      found.set(mine, theirs);
      left.delete(mine);
      right.delete(theirs);
    }
  }
  return found;
};

/** Groups paths by their last components. Paths with fewer components are left out. */
const byTail = (files: Set<string>, length: number): Map<string, string[]> => {
  const found = new Map<string, string[]>();
  for (const file of files) {
    const parts = file.split("/");
    if (parts.length < length) continue;
    const tail = parts.slice(-length).join("/");
    found.set(tail, [...(found.get(tail) ?? []), file]);
  }
  return found;
};

/** Pairs functions of several runs that were each paired with the same base. A function that the base does not have is paired with those of earlier runs. */
export class Runs {
  private readonly extra: Files = new Map();

  /** Adds the names of one run. Returns a function that maps each of these names to the name that all runs share. */
  add(names: Iterable<string>): (name: string) => string {
    const mine: Files = new Map();
    const split = (name: string): [string, string] | undefined => {
      const at = name.indexOf(ONLY_HERE);
      return at < 0 ? undefined : [name.slice(0, at), name.slice(at + ONLY_HERE.length)];
    };
    for (const name of names) {
      const [fn, file] = split(name) ?? [];
      if (fn !== undefined && file !== undefined) mine.set(fn, (mine.get(fn) ?? new Set()).add(file || null));
    }
    const shared = new Map<string, Map<File, File>>();
    for (const [fn, files] of mine) {
      const known = this.extra.get(fn) ?? new Set();
      const same = pairs(files, known);
      for (const file of files) if (!same.has(file)) known.add(file);
      this.extra.set(fn, known);
      shared.set(fn, same);
    }
    return (name) => {
      const [fn, file] = split(name) ?? [];
      const same = fn === undefined || file === undefined ? undefined : shared.get(fn)?.get(file || null);
      return same === undefined ? name : `${fn}${ONLY_HERE}${same ?? ""}`;
    };
  }
}

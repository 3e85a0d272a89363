// Names that are equal for the same function in two traces. The engine decides which functions are the same (`crates/analysis/src/pairing.rs`).
//
// Receives: the answer `pairs`. Returns: the name of a level. A live trace may have grown since the answer. A function that was not there yet has a name of its own.
import type { Level } from "./stacks";

type Names = { function: (string | null)[]; place: (string | null)[]; name: string[] };
export type PairsAnswer = { base: Names; run: Names };

/** The names of functions in one trace, by function and file, or by module for code without a name. */
type Known = Map<string | null, Map<string | null, string>>;

const known = ({ function: functions, place, name }: Names): Known => {
  const found: Known = new Map();
  functions.forEach((fn, index) => {
    const places = found.get(fn) ?? new Map<string | null, string>();
    found.set(fn, places.set(place[index] ?? null, name[index] ?? ""));
  });
  return found;
};

/** The engine's name for code of which neither the function nor the module is known. */
const NAMELESS = "\n?";

export class Pairs {
  private readonly base: Known;
  private readonly run: Known;

  constructor(answer: PairsAnswer) {
    this.base = known(answer.base);
    this.run = known(answer.run);
  }

  /** The name of a level of the base, or of the run that is compared with it. */
  nameOf({ function: fn, file, module }: Pick<Level, "function" | "file" | "module">, isBase: boolean): string {
    const place = fn === null ? module : file;
    if (fn === null && place === null) return NAMELESS;
    return (isBase ? this.base : this.run).get(fn)?.get(place) ?? `${fn ?? ""}\n?${isBase}${place ?? ""}`;
  }
}

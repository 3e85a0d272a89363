// The stacks of a trace, and what makes two of their levels the same.
//
// Receives: the `stacks` answer (docs/views.md). Returns: for a `Look` (which levels are shown, what is merged), the path of every stack as a list of
// keys, root first. Must hold: a key is made from the name of a level and not from its index, because indexes change when a live trace gets new names.
// So a key means the same for every query and every version of a trace, and expanded, zoomed and selected parts stay so. A part whose name changes is
// no longer expanded.
import type { Pairs } from "./pairing";

/** A function that counts as a part of the allocator. */
export type Wrapper = { function: string | null; short: string | null; module: string | null; reason: "name" | "numbers" | "rule" | "query"; callers: number; sizes: number; stacks: number };

export type StacksAnswer = {
  strings: string[];
  levels: {
    function: (number | null)[];
    short: (number | null)[];
    file: (number | null)[];
    line: (number | null)[];
    module: (number | null)[];
    offset: (number | null)[];
    class: (string | null)[];
    inlined: (boolean | number)[];
    /** How many letters of the short name are its namespace. */
    namespace: (number | null)[];
  };
  nodes: { parent: number[]; level: number[] };
  stacks: { node: number[]; owner?: number[]; blamed: number[]; suppressed?: number[] };
  wrappers?: Wrapper[];
  suppressions?: { pattern: string; source: string }[];
};

export type Merge = "function" | "line" | "module" | "namespace";
export type Look = { levels: "mine" | "all"; merge: Merge; recursion: boolean };

export type Level = {
  function: string | null;
  short: string | null;
  file: string | null;
  line: number | null;
  module: string | null;
  offset: number | null;
  class: string | null;
  inlined: boolean;
  /** Undefined for a level that is not from the table of stacks. */
  namespace?: string | null;
};

export const lookName = (look: Look): string => `${look.levels} ${look.merge} ${look.recursion}`;

/** The name of a level for little space. */
export const labelOf = (level: Level): string => level.short ?? level.function ?? level.module ?? "";

/** The key that all lines of one function share. */
export const functionName = ({ function: name, module }: Pick<Level, "function" | "module">): string => `${name} ${module}`;

/** The paths of all stacks. That of stack s is `keys[start[s] .. start[s+1]]`, root first. `levels` has a level for each key. */
export type Paths = { start: Uint32Array; keys: Uint32Array; levels: Uint32Array };

/** `ofLevel` is the key of each level, `names` has the name of each key. */
export type Keys = { names: Map<number, string>; ofLevel: Uint32Array };

const NOTHING: Level = { function: null, short: null, file: null, line: null, module: null, offset: null, class: null, inlined: false, namespace: null };

export class Stacks {
  readonly count: number;
  private readonly paths = new Map<string, Paths>();
  private readonly keyOf = new Map<Merge, Keys>();
  private depths: Uint32Array | undefined;

  /** `paired` is only given for two joined traces: the levels from `border` on belong to the base, and `pairs` has the names of functions. */
  constructor(
    readonly answer: StacksAnswer,
    private readonly paired?: { border: number; pairs: Pairs },
  ) {
    this.count = answer.stacks.node.length;
  }

  /** The level that stands for a stack of which no level is shown. */
  get nothing(): number {
    return this.answer.levels.function.length;
  }

  level(id: number): Level {
    if (id === this.nothing) return NOTHING;
    const { strings, levels } = this.answer;
    const text = (column: (number | null)[]): string | null => {
      const index = column[id];
      return index === null || index === undefined ? null : (strings[index] ?? null);
    };
    const short = text(levels.short);
    const namespace = levels.namespace[id] ?? null;
    return {
      function: text(levels.function),
      short,
      file: text(levels.file),
      line: levels.line[id] ?? null,
      module: text(levels.module),
      offset: levels.offset[id] ?? null,
      class: levels.class[id] ?? null,
      inlined: Boolean(levels.inlined[id]),
      namespace: namespace === null ? null : (short?.slice(0, namespace) ?? null),
    };
  }

  /** The level that a row shows for all levels with its key. In two traces, code without a name is one row per module. */
  shown(id: number): Level {
    const level = this.level(id);
    return this.paired && level.function === null ? { ...level, offset: null } : level;
  }

  /** The level to blame for a stack. Undefined if the stack has no level in the user's own code. */
  blamed(stack: number): number | undefined {
    const node = this.answer.stacks.blamed[stack];
    return node === undefined || node < 0 ? undefined : this.answer.nodes.level[node];
  }

  /** The level that owns the memory of a stack. A report of an older version does not have it. */
  owner(stack: number): number | undefined {
    const node = this.answer.stacks.owner?.[stack];
    const level = node === undefined || node <= 0 ? undefined : this.answer.nodes.level[node];
    return level ?? this.blamed(stack) ?? this.whole(stack)[0];
  }

  /** The levels of a stack, leaf first. */
  whole(stack: number): number[] {
    const { parent, level } = this.answer.nodes;
    const list: number[] = [];
    for (let node = this.answer.stacks.node[stack] ?? 0; node > 0; node = parent[node] ?? 0) {
      const id = level[node];
      if (id !== undefined && id >= 0) list.push(id);
    }
    return list;
  }

  keys(merge: Merge): Keys {
    const known = this.keyOf.get(merge);
    const count = this.nothing + 1;
    if (known && known.ofLevel.length === count) return known;
    const fresh: Keys = { names: new Map(), ofLevel: new Uint32Array(count) };
    for (let level = 0; level < count; level++) {
      const name = this.nameOf(level, merge);
      let key = hash(name);
      // The key is taken if another name has the same hash. That is rare.
      while ((fresh.names.get(key) ?? name) !== name) key = (key + 1) & LARGEST_KEY;
      fresh.names.set(key, name);
      fresh.ofLevel[level] = key;
    }
    this.keyOf.set(merge, fresh);
    return fresh;
  }

  /** The name of a level, which is equal for all levels with the same key. `pairs`: the names of several runs instead of those of this one. */
  nameOf(id: number, merge: Merge, pairs = this.paired?.pairs): string {
    const level = this.level(id);
    if (!this.paired || !pairs) return keyName(level, merge);
    // Lines and folders are ignored, because a line moves with every change above it and a module may be in another folder.
    if (merge === "function" || merge === "line") return pairs.nameOf(level, id >= this.paired.border);
    return keyName({ ...level, module: level.module?.slice(level.module.lastIndexOf("/") + 1) ?? null }, merge);
  }

  /** The paths for a `Look`, computed once. */
  look(look: Look): Paths {
    const name = lookName(look);
    let paths = this.paths.get(name);
    if (!paths) {
      paths = this.make(look);
      this.paths.set(name, paths);
    }
    return paths;
  }

  private make(look: Look): Paths {
    const { parent, level } = this.answer.nodes;
    const { ofLevel } = this.keys(look.merge);
    const hidden = this.hidden(look);
    const start = new Uint32Array(this.count + 1);
    const lengths = this.depth();
    let room = 0;
    for (let stack = 0; stack < this.count; stack++) room += lengths[this.answer.stacks.node[stack] ?? 0] ?? 0;
    const keys = new Uint32Array(room + this.count);
    const levels = new Uint32Array(room + this.count);
    let end = 0;
    for (let stack = 0; stack < this.count; stack++) {
      const from = end;
      for (let node = this.answer.stacks.node[stack] ?? 0; node > 0; node = parent[node] ?? 0) {
        const id = level[node] ?? -1;
        if (id < 0) continue;
        if (hidden[id]) continue;
        const key = ofLevel[id] ?? 0;
        if (look.recursion && end > from && keys[end - 1] === key) {
          levels[end - 1] = id;
          continue;
        }
        keys[end] = key;
        levels[end] = id;
        end += 1;
      }
      // A stack without the user's own code still has costs.
      if (end === from) {
        keys[end] = ofLevel[this.nothing] ?? 0;
        levels[end] = this.nothing;
        end += 1;
      }
      keys.subarray(from, end).reverse();
      levels.subarray(from, end).reverse();
      start[stack + 1] = end;
    }
    return { start, keys: keys.slice(0, end), levels: levels.slice(0, end) };
  }

  /** The depth of each node. */
  private depth(): Uint32Array {
    const { parent } = this.answer.nodes;
    if (this.depths && this.depths.length === parent.length) return this.depths;
    const depths = new Uint32Array(parent.length);
    for (let node = 1; node < parent.length; node++) depths[node] = (depths[parent[node] ?? 0] ?? 0) + 1;
    this.depths = depths;
    return depths;
  }

  private hidden(look: Look): Uint8Array {
    const { levels } = this.answer;
    const hidden = new Uint8Array(levels.class.length);
    if (look.levels === "all") return hidden;
    for (let id = 0; id < hidden.length; id++) {
      // A level without a class is a marker for frames that are missing. It is never hidden.
      const name = levels.class[id] ?? null;
      if (name !== "program" && name !== null) hidden[id] = 1;
    }
    return hidden;
  }

  /** For each stack, 1 if it matches all of `include` and none of `exclude`, otherwise 0. Undefined if there is no pattern. */
  matching(include: string[], exclude: string[]): Uint8Array | undefined {
    if (include.length + exclude.length === 0) return undefined;
    const count = this.answer.levels.function.length;
    const tests = [...include, ...exclude].map((pattern) => {
      const test = matcher(pattern);
      const found = new Uint8Array(count);
      for (let id = 0; id < count; id++) found[id] = test(this.level(id)) ? 1 : 0;
      return found;
    });
    const result = new Uint8Array(this.count);
    for (let stack = 0; stack < this.count; stack++) {
      const levels = this.whole(stack);
      const has = tests.map((found) => levels.some((id) => found[id]));
      result[stack] = has.every((one, index) => one === index < include.length) ? 1 : 0;
    }
    return result;
  }
}

/** V8 stores integers of up to 30 bits without an object for each. */
const LARGEST_KEY = 2 ** 30 - 1;

/** FNV-1a. */
const hash = (name: string): number => {
  let bits = 0x811c9dc5;
  for (let place = 0; place < name.length; place++) bits = Math.imul(bits ^ name.charCodeAt(place), 0x01000193);
  return bits & LARGEST_KEY;
};

export const keyName = (level: Level, merge: Merge): string => {
  const own = `${level.function ?? `+${level.offset ?? ""}`}\n${level.module ?? ""}`;
  switch (merge) {
    case "line":
      return `${own}\n${level.file ?? ""}\n${level.line ?? ""}`;
    case "module":
      return level.module ?? "";
    case "namespace":
      return namespace(level);
    default:
      return own;
  }
};

/** The namespace of a level, as the engine decided; without one, the module. */
export const namespace = (level: Level): string => level.namespace ?? level.module ?? "";

/** `[function:|file:|module:]TEXT` or `/REGEX/`. An invalid regular expression matches nothing. */
export const matcher = (pattern: string): ((level: Level) => boolean) => {
  const prefix = /^(function|file|module):/.exec(pattern)?.[1];
  const text = prefix ? pattern.slice(prefix.length + 1) : pattern;
  let test: (text: string) => boolean;
  if (text.length > 1 && text.startsWith("/") && text.endsWith("/")) {
    try {
      const regex = new RegExp(text.slice(1, -1), "i");
      test = (candidate) => regex.test(candidate);
    } catch {
      return () => false;
    }
  } else {
    const wanted = text.toLowerCase();
    test = (candidate) => candidate.toLowerCase().includes(wanted);
  }
  const has = (candidate: string | null): boolean => candidate !== null && test(candidate);
  switch (prefix) {
    case "function":
      return (level) => has(level.function) || has(level.short);
    case "file":
      return (level) => has(level.file);
    case "module":
      return (level) => has(level.module);
    default:
      return (level) => has(level.function) || has(level.short) || has(level.file) || has(level.module);
  }
};

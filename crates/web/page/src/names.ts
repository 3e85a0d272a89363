// The names of levels: the short form, or the full one on demand.
import { type Level, namespace } from "./work/stacks";

export const NOTHING = "[outside your code]";

export const nameOf = (level: Level, full: boolean): string => {
  const text = full ? (level.function ?? level.short) : (level.short ?? level.function);
  if (text) return text;
  if (level.module !== null) return level.offset === null ? base(level.module) : `${base(level.module)}+0x${level.offset.toString(16)}`;
  return NOTHING;
};

export const base = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** `file:line` without the folder, or the module if the file is not known. */
export const where = (level: Level): string => {
  if (level.file) return level.line ? `${base(level.file)}:${level.line}` : base(level.file);
  return level.module ? base(level.module) : "";
};

/** The place that is shown after a row's name. Empty if the row stands for more than one function. */
export const placeOf = (level: Level, merge: string): string => (merge === "module" || merge === "namespace" ? "" : where(level));

export const whole = (level: Level): string => (level.file ? (level.line ? `${level.file}:${level.line}` : level.file) : "");

/** The name of a row. `merge` is what its levels have in common: the function, the line, the module or the namespace. */
export const labelOf = (level: Level, merge: string, full: boolean): string => {
  if (merge === "module") return level.module ? (full ? level.module : base(level.module)) : "[no module]";
  if (merge === "namespace") {
    const name = namespace(level);
    return name === "" ? NOTHING : name === level.module && !full ? base(name) : name;
  }
  if (merge === "line") return `${nameOf(level, full)}  ${where(level)}`;
  return nameOf(level, full);
};

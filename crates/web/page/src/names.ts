// How a level is called. The short form first; the full one on demand.
import { type Level, namespace } from "./work/stacks";

export const NOTHING = "[no code of yours]";

export const nameOf = (level: Level, full: boolean): string => {
  const text = full ? (level.function ?? level.short) : (level.short ?? level.function);
  if (text) return text;
  if (level.module !== null) return level.offset === null ? base(level.module) : `${base(level.module)}+0x${level.offset.toString(16)}`;
  return NOTHING;
};

export const base = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** file:line, the file without its folders. */
export const where = (level: Level): string => {
  if (level.file) return level.line ? `${base(level.file)}:${level.line}` : base(level.file);
  return level.module ? base(level.module) : "";
};

/** What stands behind a row's name: nothing where the row is more than one function. */
export const placeOf = (level: Level, merge: string): string => (merge === "module" || merge === "namespace" ? "" : where(level));

export const whole = (level: Level): string => (level.file ? (level.line ? `${level.file}:${level.line}` : level.file) : "");

/** For a merge other than by function a level stands for more than itself. */
export const labelOf = (level: Level, merge: string, full: boolean): string => {
  if (merge === "module") return level.module ? (full ? level.module : base(level.module)) : "[no module]";
  if (merge === "namespace") {
    const name = namespace(level);
    return name === "" ? NOTHING : name === level.module && !full ? base(name) : name;
  }
  if (merge === "line") return `${nameOf(level, full)}  ${where(level)}`;
  return nameOf(level, full);
};

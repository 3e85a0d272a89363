// Joins two traces to one set, to compare them.
//
// Receives: the stacks of both traces. Returns: one set, in which the levels, nodes and stacks of the second trace follow those of the first. The
// engine decides which functions are the same (`pairing.ts`).
import type { StacksAnswer } from "./stacks";

export const join = (one: StacksAnswer, other: StacksAnswer): StacksAnswer => {
  const strings = one.strings.length;
  const levels = one.levels.function.length;
  // Both share one root. All other nodes of the second trace follow those of the first.
  const nodes = one.nodes.parent.length - 1;
  const text = (index: number | null): number | null => (index === null ? null : index + strings);
  const node = (index: number): number => (index > 0 ? index + nodes : index);
  const suppressions = one.suppressions?.length ?? 0;
  const suppressed = (answer: StacksAnswer): number[] => answer.stacks.suppressed ?? answer.stacks.node.map(() => -1);
  // A report of an older version has no owners.
  const owner = ({ stacks }: StacksAnswer): number[] => stacks.owner ?? stacks.blamed.map((blamed, stack) => (blamed < 0 ? (stacks.node[stack] ?? 0) : blamed));
  return {
    strings: [...one.strings, ...other.strings],
    levels: {
      function: [...one.levels.function, ...other.levels.function.map(text)],
      short: [...one.levels.short, ...other.levels.short.map(text)],
      file: [...one.levels.file, ...other.levels.file.map(text)],
      line: [...one.levels.line, ...other.levels.line],
      module: [...one.levels.module, ...other.levels.module.map(text)],
      offset: [...one.levels.offset, ...other.levels.offset],
      class: [...one.levels.class, ...other.levels.class],
      inlined: [...one.levels.inlined, ...other.levels.inlined],
      namespace: [...one.levels.namespace, ...other.levels.namespace],
    },
    nodes: {
      parent: [...one.nodes.parent, ...other.nodes.parent.slice(1).map(node)],
      level: [...one.nodes.level, ...other.nodes.level.slice(1).map((level) => level + levels)],
    },
    stacks: {
      node: [...one.stacks.node, ...other.stacks.node.map(node)],
      owner: [...owner(one), ...owner(other).map(node)],
      blamed: [...one.stacks.blamed, ...other.stacks.blamed.map(node)],
      suppressed: [...suppressed(one), ...suppressed(other).map((index) => (index < 0 ? index : index + suppressions))],
    },
    wrappers: [...(one.wrappers ?? []), ...(other.wrappers ?? [])],
    suppressions: [...(one.suppressions ?? []), ...(other.suppressions ?? [])],
  };
};

// Two traces as one, for comparing them.
//
// Given: the stacks of both. Gives back: one set, in which the second one's levels, nodes and stacks come behind the first one's. Which of their functions are
// the same is `pairing.ts`'s to say.
import type { StacksAnswer } from "./stacks";

export const join = (one: StacksAnswer, other: StacksAnswer): StacksAnswer => {
  const strings = one.strings.length;
  const levels = one.levels.function.length;
  // The other's root is this one's: all its other nodes come behind ours.
  const nodes = one.nodes.parent.length - 1;
  const text = (index: number | null): number | null => (index === null ? null : index + strings);
  const node = (index: number): number => (index > 0 ? index + nodes : index);
  const suppressions = one.suppressions?.length ?? 0;
  const suppressed = (answer: StacksAnswer): number[] => answer.stacks.suppressed ?? answer.stacks.node.map(() => -1);
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
    },
    nodes: {
      parent: [...one.nodes.parent, ...other.nodes.parent.slice(1).map(node)],
      level: [...one.nodes.level, ...other.nodes.level.slice(1).map((level) => level + levels)],
    },
    stacks: {
      node: [...one.stacks.node, ...other.stacks.node.map(node)],
      blamed: [...one.stacks.blamed, ...other.stacks.blamed.map(node)],
      suppressed: [...suppressed(one), ...suppressed(other).map((index) => (index < 0 ? index : index + suppressions))],
    },
    suppressions: [...(one.suppressions ?? []), ...(other.suppressions ?? [])],
  };
};

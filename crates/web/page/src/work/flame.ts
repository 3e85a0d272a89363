// A flame graph as columns of numbers, ready to draw.
//
// Receives: a tree, a cost, a threshold. Returns: boxes in depth-first order with their position (0 to 1), so that drawing can skip a whole subtree
// if its box is too narrow. In a comparison, a box is as wide as the larger of before and after, so that functions that are gone are visible.
import { type Cost, WIDTH, at, value } from "../costs";
import type { Node, Tree } from "./tree";

export type Flame = {
  count: number;
  from: Float64Array;
  to: Float64Array;
  depth: Uint16Array;
  /** The index after the last box of the subtree. */
  end: Uint32Array;
  parent: Int32Array;
  key: Int32Array;
  level: Int32Array;
  value: Float64Array;
  base: Float64Array | undefined;
  deepest: number;
  /** The number of boxes that were left out because they are below the threshold (`small`), and because there are enough boxes already (`beyond`). Their descendants are not counted. */
  cut: { small: number; beyond: number };
};

type Box = { node: Node; from: number; parent: number };

/** About the most boxes of a flame graph. */
export const MOST = 400_000;

export const flame = (tree: Tree, cost: Cost, threshold: number, most = MOST): Flame => {
  const weight = weights(tree, cost);
  const all = weight(tree.root);
  const least = all * threshold;
  const boxes: { node: Node; from: number; to: number; parent: number }[] = [];
  const cut = { small: 0, beyond: 0 };
  const open: Box[] = [{ node: tree.root, from: 0, parent: -1 }];
  const sort = { cost, ascending: false };
  for (let next = open.pop(); next; next = open.pop()) {
    const index = boxes.length;
    const width = all > 0 ? weight(next.node) / all : 0;
    boxes.push({ node: next.node, from: next.from, to: next.from + width, parent: next.parent });
    const children = tree.children(next.node, sort).filter((child) => weight(child) > 0);
    const shown = children.filter((child) => weight(child) >= least);
    cut.small += children.length - shown.length;
    if (boxes.length + open.length > most) {
      cut.beyond += shown.length;
      continue;
    }
    const order = tree.profile.base ? shown.sort((a, b) => weight(b) - weight(a)) : shown;
    let place = next.from;
    const starts = order.map((child) => {
      const start = place;
      place += weight(child) / all;
      return start;
    });
    // The child that is pushed last is popped next. It is the largest one, at the left.
    for (let child = order.length - 1; child >= 0; child--) {
      const node = order[child];
      if (node) open.push({ node, from: starts[child] ?? 0, parent: index });
    }
  }
  return columns(tree, boxes, cost, cut);
};

/** For each row, the first row with the same path. Stacks of two traces have the same path if their functions are the same. */
const firsts = new WeakMap<Tree, Uint32Array>();
const firstOf = (tree: Tree): Uint32Array => {
  const found = firsts.get(tree);
  if (found) return found;
  const { stack } = tree.profile;
  const { keys, start } = tree.paths;
  const known = new Map<string, number>();
  const first = stack.map((number, row) => {
    const path = keys.subarray(start[number], start[number + 1]).join();
    if (!known.has(path)) known.set(path, row);
    return known.get(path) ?? row;
  });
  firsts.set(tree, first);
  return first;
};

/** The larger of before and after for each stack, added up. This is the width of a box in a comparison. */
const weights = (tree: Tree, cost: Cost): ((node: Node) => number) => {
  const { sums, base } = tree.profile;
  if (!base) return (node) => Math.max(0, value(node.sums, cost));
  const first = firstOf(tree);
  const larger = new Float64Array(first.length);
  const before = new Float64Array(first.length);
  const place = at(cost as never);
  first.forEach((to, row) => {
    larger[to] = (larger[to] ?? 0) + (sums[row * WIDTH + place] ?? 0);
    before[to] = (before[to] ?? 0) + (base[row * WIDTH + place] ?? 0);
  });
  larger.forEach((amount, row) => {
    larger[row] = Math.max(amount, before[row] ?? 0);
  });
  const known = new Map<Node, number>();
  return (node) => {
    let sum = known.get(node);
    if (sum === undefined) {
      sum = 0;
      for (const row of node.rows) sum += larger[row] ?? 0;
      known.set(node, sum);
    }
    return sum;
  };
};

const columns = (tree: Tree, boxes: { node: Node; from: number; to: number; parent: number }[], cost: Cost, cut: Flame["cut"]): Flame => {
  const count = boxes.length;
  const result: Flame = {
    count,
    from: new Float64Array(count),
    to: new Float64Array(count),
    depth: new Uint16Array(count),
    end: new Uint32Array(count),
    parent: new Int32Array(count),
    key: new Int32Array(count),
    level: new Int32Array(count),
    value: new Float64Array(count),
    base: tree.profile.base && new Float64Array(count),
    deepest: 0,
    cut,
  };
  boxes.forEach((box, index) => {
    result.from[index] = box.from;
    result.to[index] = box.to;
    result.depth[index] = box.node.depth;
    result.parent[index] = box.parent;
    result.key[index] = box.node.key;
    result.level[index] = box.node.level;
    result.value[index] = value(box.node.sums, cost);
    if (result.base && box.node.base) result.base[index] = value(box.node.base, cost);
    result.deepest = Math.max(result.deepest, box.node.depth);
    result.end[index] = index + 1;
  });
  for (let index = count - 1; index > 0; index--) {
    const parent = result.parent[index] ?? -1;
    if (parent >= 0) result.end[parent] = Math.max(result.end[parent] ?? 0, result.end[index] ?? 0);
  }
  return result;
};

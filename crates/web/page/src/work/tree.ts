// Call trees, computed only as far as they are shown.
//
// Receives: paths and costs of stacks. Returns: nodes with totals, their children by cost, and the visible rows. A node is a set of stacks that agree in
// their first keys (top-down from the root, bottom-up from the leaf). A child is a subset of it, so nothing is computed before it is needed.
import { type Cost, WIDTH, value } from "../costs";
import { type Profile, add, total } from "./profile";
import type { Paths } from "./stacks";

export type Direction = "top-down" | "bottom-up";

export type Node = {
  key: number;
  /** A level with this key, for its names; -1 for the root. */
  level: number;
  depth: number;
  parent: Node | undefined;
  /** Rows of the profile. */
  rows: Uint32Array;
  sums: Float64Array;
  base: Float64Array | undefined;
  /** The sums of stacks that end at this node. They are computed together with `children`. */
  self: Float64Array;
  children: Node[] | undefined;
  sorted: string;
};

export type Sort = { cost: Cost | "name"; ascending: boolean };

export class Tree {
  readonly root: Node;

  constructor(
    readonly profile: Profile,
    readonly paths: Paths,
    readonly direction: Direction,
    readonly nameOf: (level: number) => string,
  ) {
    const rows = new Uint32Array(profile.stack.length);
    for (let row = 0; row < rows.length; row++) rows[row] = row;
    this.root = {
      key: -1,
      level: -1,
      depth: 0,
      parent: undefined,
      rows,
      sums: total(profile.sums),
      base: profile.base && total(profile.base),
      self: new Float64Array(WIDTH),
      children: undefined,
      sorted: "",
    };
  }

  /** The sorted children of a node. */
  children(node: Node, sort: Sort): Node[] {
    node.children ??= this.group(node);
    const order = `${sort.cost} ${sort.ascending}`;
    if (node.sorted !== order) {
      this.sort(node.children, sort);
      node.sorted = order;
    }
    return node.children;
  }

  /** Whether a node has children, without computing them. */
  hasChildren(node: Node): boolean {
    if (node.children) return node.children.length > 0;
    for (const row of node.rows) {
      const stack = this.profile.stack[row] ?? 0;
      if ((this.paths.start[stack + 1] ?? 0) - (this.paths.start[stack] ?? 0) > node.depth) return true;
    }
    return false;
  }

  private group(node: Node): Node[] {
    const { profile, paths, direction } = this;
    const groups = new Map<number, { rows: number[]; level: number }>();
    for (const row of node.rows) {
      const stack = profile.stack[row] ?? 0;
      const from = paths.start[stack] ?? 0;
      const to = paths.start[stack + 1] ?? 0;
      if (to - from <= node.depth) {
        if (node.depth > 0) add(node.self, profile.sums, row);
        continue;
      }
      const place = direction === "top-down" ? from + node.depth : to - 1 - node.depth;
      const key = paths.keys[place] ?? 0;
      const group = groups.get(key);
      if (group) group.rows.push(row);
      else groups.set(key, { rows: [row], level: paths.levels[place] ?? 0 });
    }
    return [...groups].map(([key, group]) => this.make(node, key, group.level, Uint32Array.from(group.rows)));
  }

  private make(parent: Node, key: number, level: number, rows: Uint32Array): Node {
    const { profile } = this;
    const sums = new Float64Array(WIDTH);
    const base = profile.base && new Float64Array(WIDTH);
    for (const row of rows) {
      add(sums, profile.sums, row);
      if (base && profile.base) add(base, profile.base, row);
    }
    return { key, level, depth: parent.depth + 1, parent, rows, sums, base, self: new Float64Array(WIDTH), children: undefined, sorted: "" };
  }

  /** The sums of stacks that end at a node. They are computed with its children. */
  self(node: Node): Float64Array {
    node.children ??= this.group(node);
    return node.self;
  }

  private sort(nodes: Node[], { cost, ascending }: Sort): void {
    const sign = ascending ? 1 : -1;
    if (cost === "name") {
      nodes.sort((a, b) => sign * this.nameOf(a.level).localeCompare(this.nameOf(b.level)));
      return;
    }
    const of = (node: Node): number => value(node.sums, cost) - (node.base ? value(node.base, cost) : 0);
    const weight = (node: Node): number => (node.base ? Math.abs(of(node)) : of(node));
    nodes.sort((a, b) => sign * (weight(a) - weight(b)) || value(b.sums, "allocations") - value(a.sums, "allocations") || a.level - b.level);
  }
}

/** The path of a node: its keys from the root, base 36. It stays the same when costs change and when the trace grows. */
export const pathOf = (node: Node): string => {
  const keys: string[] = [];
  for (let at: Node | undefined = node; at && at.depth > 0; at = at.parent) keys.push(at.key.toString(36));
  return keys.reverse().join(".");
};

export const find = (tree: Tree, path: string, sort: Sort): Node | undefined => {
  let node: Node | undefined = tree.root;
  for (const word of path ? path.split(".") : []) {
    const key = Number.parseInt(word, 36);
    node = tree.children(node, sort).find((child) => child.key === key);
    if (!node) return undefined;
  }
  return node;
};

/** The visible rows, in order. */
export const visible = (tree: Tree, sort: Sort, expanded: Set<string>, limit: number): { nodes: Node[]; indents: number[]; paths: string[] } => {
  const nodes: Node[] = [];
  const indents: number[] = [];
  const paths: string[] = [];
  // Uses an explicit stack instead of recursion, because call stacks can be thousands of levels deep.
  const open: { list: Node[]; next: number; indent: number; path: string }[] = [{ list: tree.children(tree.root, sort), next: 0, indent: 0, path: "" }];
  while (open.length > 0 && nodes.length < limit) {
    const top = open[open.length - 1];
    if (!top) break;
    const node = top.list[top.next++];
    if (!node) {
      open.pop();
      continue;
    }
    const path = top.path ? `${top.path}.${node.key.toString(36)}` : node.key.toString(36);
    nodes.push(node);
    indents.push(top.indent);
    paths.push(path);
    if (expanded.has(path)) {
      const list = tree.children(node, sort);
      // A chain of only children is not indented, because it would use up the width.
      const indent = list.length > 1 || top.list.length > 1 ? top.indent + 1 : top.indent;
      if (list.length > 0) open.push({ list, next: 0, indent, path });
    }
  }
  return { nodes, indents, paths };
};

/** Expands a whole subtree, but stops after about `limit` nodes. */
export const expandAll = (tree: Tree, from: Node, path: string, sort: Sort, expanded: Set<string>, limit: number): void => {
  const open: [Node, string][] = [[from, path]];
  let made = 0;
  while (made < limit) {
    const next = open.pop();
    if (!next) return;
    const [node, where] = next;
    const children = tree.children(node, sort);
    if (children.length === 0) continue;
    if (where) expanded.add(where);
    made += children.length;
    for (const child of children) open.push([child, where ? `${where}.${child.key.toString(36)}` : child.key.toString(36)]);
  }
};

/** Expands a node, and further down while there is only one child. */
export const expandChain = (tree: Tree, from: Node, path: string, sort: Sort, expanded: Set<string>): void => {
  let node = from;
  let where = path;
  for (;;) {
    expanded.add(where);
    const [only, ...rest] = tree.children(node, sort);
    if (!only || rest.length > 0) return;
    node = only;
    where = `${where}.${only.key.toString(36)}`;
  }
};

/** Expands the most expensive path, while one child has at least half of its parent. */
export const expandHot = (tree: Tree, from: Node, path: string, sort: Sort, expanded: Set<string>): string => {
  const cost: Cost = sort.cost === "name" ? "peak_bytes" : sort.cost;
  let node = from;
  let where = path;
  for (;;) {
    const children = tree.children(node, { cost, ascending: false });
    const [first] = children;
    if (!first || value(first.sums, cost) * 2 < value(node.sums, cost)) return where;
    if (where) expanded.add(where);
    node = first;
    where = where ? `${where}.${first.key.toString(36)}` : first.key.toString(36);
  }
};

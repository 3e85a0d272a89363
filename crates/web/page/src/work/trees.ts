// The trees that are shown, as rows and as flame graphs.
import { value } from "../costs";
import { dataOf, named, totalsOf } from "./data";
import { flame } from "./flame";
import { Kept } from "./kept";
import type { Ask, Requests, TreeRow } from "./protocol";
import { type Level, type Look, type Stacks, labelOf, lookName } from "./stacks";
import { type Direction, type Node, type Sort, Tree, expandAll, expandChain, expandHot, find, visible } from "./tree";

/** The most visible rows of a tree. */
const MOST_ROWS = 500_000;

// The tree that is shown for each direction, and the expanded nodes of each trace, direction and look. Nodes stay expanded when the costs change and when the trace grows.
type Shown = { tree: Tree; name: string; sort: Sort; stacks: Stacks; nodes: Node[]; indents: number[]; paths: string[] };
const shown = new Map<Direction, Shown>();
/** The number of requests for a tree of each direction. An answer that had to wait for the server must not replace the tree of a later request. */
const requests = new Map<Direction, number>();
const expanded = new Map<string, Set<string>>();
const expandedOf = (name: string): Set<string> => {
  let set = expanded.get(name);
  if (!set) {
    set = new Set();
    expanded.set(name, set);
  }
  return set;
};
const allTrees = new Kept<Tree>();
export const treeOf = (ask: Ask, look: Look, direction: Direction): Promise<Tree> =>
  allTrees.get(`${named(ask)} ${lookName(look)} ${direction}`, async () => {
    const { stacks, profile } = await dataOf(ask);
    return new Tree(profile, stacks.look(look), direction, (level) => labelOf(stacks.level(level)));
  });

export const tree = async ({ ask, look, direction, sort }: Requests["tree"]["args"]): Promise<Requests["tree"]["result"]> => {
  const request = (requests.get(direction) ?? 0) + 1;
  requests.set(direction, request);
  const data = await dataOf(ask);
  const made = await treeOf(ask, look, direction);
  const name = `${ask.trace} ${direction} ${lookName(look)}`;
  const view: Shown = { tree: made, name, sort, stacks: data.stacks, ...visible(made, sort, expandedOf(name), MOST_ROWS) };
  if (requests.get(direction) === request) shown.set(direction, view);
  return { count: view.nodes.length, totals: totalsOf(data) };
};

export const window = ({ direction, from: first, to }: Requests["window"]["args"]): TreeRow[] => {
  const view = shown.get(direction);
  if (!view) return [];
  const set = expandedOf(view.name);
  return view.nodes.slice(first, to).map((node, offset) => {
    const index = first + offset;
    const path = view.paths[index] ?? "";
    const siblings = view.tree.children(node.parent ?? view.tree.root, view.sort);
    return {
      level: view.stacks.shown(node.level),
      key: node.key,
      sums: node.sums,
      base: node.base,
      // Bottom-up, stacks end at their outermost level, and no view shows those sums.
      ...(direction === "top-down" ? { self: view.tree.self(node) } : {}),
      path,
      indent: view.indents[index] ?? 0,
      depth: node.depth,
      expandable: view.tree.hasChildren(node),
      expanded: set.has(path),
      siblings: siblings.length,
      place: siblings.indexOf(node) + 1,
    };
  });
};

export const toggle = ({ direction, path, how }: Requests["toggle"]["args"]): { count: number; index: number } => {
  const view = shown.get(direction);
  if (!view) return { count: 0, index: -1 };
  const { tree: made, sort } = view;
  const set = expandedOf(view.name);
  let target = path;
  const node = find(made, path, sort);
  if (node) {
    if (how === "close") set.delete(path);
    else if (how === "none") {
      for (const open of [...set]) if (path === "" || open === path || open.startsWith(`${path}.`)) set.delete(open);
    } else if (how === "all") expandAll(made, node, path, sort, set, MOST_ROWS);
    else if (how === "hot") target = expandHot(made, node, path, sort, set);
    else expandChain(made, node, path, sort, set);
  }
  Object.assign(view, visible(made, sort, set, MOST_ROWS));
  return { count: view.nodes.length, index: view.paths.indexOf(target) };
};

export const place = ({ direction, path }: Requests["place"]["args"]): number => shown.get(direction)?.paths.indexOf(path) ?? -1;

export const flameOf = async ({ ask, look, direction, cost, threshold }: Requests["flame"]["args"]): Promise<Requests["flame"]["result"]> => {
  const { stacks } = await dataOf(ask);
  const made = await treeOf(ask, look, direction);
  const drawn = flame(made, cost, threshold);
  const labels = new Map<number, Level>();
  for (let index = 1; index < drawn.count; index++) {
    const key = drawn.key[index] ?? 0;
    if (!labels.has(key)) labels.set(key, stacks.shown(drawn.level[index] ?? 0));
  }
  return { flame: drawn, labels, total: value(made.root.sums, cost) };
};

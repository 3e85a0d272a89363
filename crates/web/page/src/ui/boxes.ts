// Draws the boxes of a flame graph, and finds the box under the mouse.
//
// Must hold: the subtree of a box that is too narrow or out of sight is not visited. Boxes are in depth-first order, so the box and its subtree are skipped in one
// step.
import { deltaColour, ownerColour } from "../colours";
import type { Flame } from "../work/flame";
import { type Level, matcher } from "../work/stacks";
import { FONT, type Pen } from "./pen";

export const BOX = 22;
const NARROW = 0.6;

export type Scene = {
  flame: Flame;
  labels: Map<number, Level>;
  text: (index: number) => string;
  /** The box that fills the width. */
  zoom: number;
  width: number;
  height: number;
  /** True if the root is at the bottom. */
  up: boolean;
  hover: number;
  cursor: number;
  found: Uint8Array | undefined;
  isDiff: boolean;
  ink: { text: string; faint: string; line: string; paper: string };
};

export const heightOf = (flame: Flame, zoom: number, most: number): number => {
  let deepest = 0;
  const end = flame.end[zoom] ?? flame.count;
  for (let index = zoom; index < end; index++) deepest = Math.max(deepest, flame.depth[index] ?? 0);
  return (Math.min(most, deepest) + 1) * BOX + 2;
};

const place = (scene: Scene, index: number): [number, number, number] => {
  const { flame, zoom, width, up, height } = scene;
  const from = flame.from[zoom] ?? 0;
  const span = Math.max(1e-12, (flame.to[zoom] ?? 1) - from);
  const isAncestor = (flame.depth[index] ?? 0) < (flame.depth[zoom] ?? 0);
  const left = isAncestor ? 0 : (((flame.from[index] ?? 0) - from) / span) * width;
  const right = isAncestor ? width : (((flame.to[index] ?? 0) - from) / span) * width;
  const row = flame.depth[index] ?? 0;
  const y = up ? height - (row + 1) * BOX : row * BOX;
  return [left, right - left, y];
};

const ancestors = (flame: Flame, index: number): number[] => {
  const list: number[] = [];
  for (let at = flame.parent[index] ?? -1; at >= 0; at = flame.parent[at] ?? -1) list.push(at);
  return list;
};

export const drawFlame = (pen: Pen, context: CanvasRenderingContext2D | undefined, scene: Scene): void => {
  const { flame, zoom, height } = scene;
  for (const index of ancestors(flame, zoom)) box(pen, context, scene, index, 0.55);
  const end = flame.end[zoom] ?? flame.count;
  for (let index = zoom; index < end; ) {
    const [, wide, y] = place(scene, index);
    if (wide < NARROW || y < -BOX || y > height) {
      index = flame.end[index] ?? end;
      continue;
    }
    box(pen, context, scene, index, 1);
    index += 1;
  }
};

const box = (pen: Pen, context: CanvasRenderingContext2D | undefined, scene: Scene, index: number, strength: number): void => {
  const { flame, labels, found, ink } = scene;
  const [left, wide, y] = place(scene, index);
  const level = labels.get(flame.key[index] ?? 0);
  let colour = index === 0 || !level ? ink.line : scene.isDiff ? deltaColour(flame.value[index] ?? 0, flame.base?.[index] ?? 0) : ownerColour(level);
  const isFaint = strength < 1 || (found !== undefined && !found[index]);
  if (found?.[index]) colour = "#f5d90a";
  if (context) context.globalAlpha = isFaint ? 0.4 : 1;
  const gap = wide > 3 ? 1 : 0;
  pen.rect(left, y, wide - gap, BOX - 1, colour, index === scene.hover || index === scene.cursor ? ink.text : undefined);
  if (context) context.globalAlpha = isFaint ? 0.75 : 1;
  if (wide > 28) {
    const text = fit(scene.text(index), wide - 8);
    if (text) pen.text(text, left + 4, y + BOX / 2, index === 0 ? ink.text : "#10151f", "left", FONT);
  }
  if (context) context.globalAlpha = 1;
};

/** Cuts a name to the width. Assumes that all letters are equally wide, which is good enough. */
const fit = (text: string, wide: number): string => {
  const letters = Math.floor(wide / 6.6);
  if (text.length <= letters) return text;
  return letters > 3 ? `${text.slice(0, letters - 1)}…` : "";
};

/** The box at a point; -1 if there is none. */
export const boxAt = (scene: Scene, x: number, y: number): number => {
  const { flame, zoom, height, up } = scene;
  const depth = Math.floor((up ? height - y : y) / BOX);
  if (depth < (flame.depth[zoom] ?? 0)) return ancestors(flame, zoom).find((index) => flame.depth[index] === depth) ?? -1;
  const end = flame.end[zoom] ?? flame.count;
  for (let index = zoom; index < end; ) {
    const [left, wide] = place(scene, index);
    if (x < left || x >= left + wide) {
      index = flame.end[index] ?? end;
      continue;
    }
    if (flame.depth[index] === depth) return index;
    index += 1;
  }
  return -1;
};

/** The boxes whose function, file or module matches, and the sum of their values. A box below another match does not count again. */
export const matched = (flame: Flame, labels: Map<number, Level>, search: string): { boxes: Uint8Array; total: number } => {
  const test = matcher(search);
  const keys = new Map<number, boolean>();
  for (const [key, level] of labels) keys.set(key, test(level));
  const boxes = new Uint8Array(flame.count);
  let total = 0;
  let counted = 0;
  for (let index = 1; index < flame.count; index++) {
    if (!keys.get(flame.key[index] ?? 0)) continue;
    boxes[index] = 1;
    if (index < counted) continue;
    total += flame.value[index] ?? 0;
    counted = flame.end[index] ?? index;
  }
  return { boxes, total };
};

export const pathOf = (flame: Flame, index: number): string => {
  const keys: string[] = [];
  for (let at = index; at > 0; at = flame.parent[at] ?? 0) keys.push((flame.key[at] ?? 0).toString(36));
  return keys.reverse().join(".");
};

/** The box of a path, or the nearest ancestor that exists. */
export const walk = (flame: Flame, path: string): number => {
  let at = 0;
  for (const word of path ? path.split(".") : []) {
    const key = Number.parseInt(word, 36);
    const end = flame.end[at] ?? flame.count;
    let child = at + 1;
    while (child < end && flame.key[child] !== key) child = flame.end[child] ?? end;
    if (child >= end) return at;
    at = child;
  }
  return at;
};

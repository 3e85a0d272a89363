// Colours. In flame graphs the owner of the code decides the hue, and the function decides the shade (`ownerColour`). In bands and bars a function has one
// colour, which is the same in every chart (`functionColour`).
//
// The owners' colours differ in lightness as well as in hue, so that colour-blind people can tell them apart.
import type { Level } from "./work/stacks";

/** For bands and legends. Neighbours in this order differ for every kind of colour vision (based on Okabe and Ito). */
export const PALETTE = ["#d95f1e", "#2f6fe4", "#f2b134", "#1b9e77", "#8e6fd8", "#56b4e9", "#b8356f", "#7a9a01", "#e78ac3", "#4d4d9f", "#a0703c", "#17a5b5"];
export const OTHER = "#b7bfcc";

export const OWNERS: [string, string, string][] = [
  ["program", "your code", "#e8743b"],
  ["dependency", "libraries", "#4c86d8"],
  ["runtime", "language runtime", "#9aa5b8"],
  ["libc", "libc", "#c3cad6"],
  ["kernel", "kernel", "#7d8798"],
];

const HUES: Record<string, [number, number, number]> = {
  program: [22, 78, 60],
  dependency: [214, 62, 62],
  runtime: [220, 16, 70],
  libc: [216, 14, 80],
  kernel: [220, 12, 55],
};

export const hash = (text: string): number => {
  let sum = 2166136261;
  for (let place = 0; place < text.length; place++) sum = Math.imul(sum ^ text.charCodeAt(place), 16777619);
  return sum >>> 0;
};

const known = new Map<string, string>();

/** The colour of the owner of the code, in a shade that depends on the function's name. */
export const ownerColour = (level: Level): string => {
  const name = level.function ?? level.module ?? "";
  const id = `${level.class} ${name}`;
  let colour = known.get(id);
  if (!colour) {
    const [hue, saturation, light] = HUES[level.class ?? ""] ?? [220, 8, 76];
    const chance = hash(name);
    colour = `hsl(${hue + ((chance % 17) - 8)} ${saturation}% ${light + (((chance >> 8) % 13) - 6)}%)`;
    known.set(id, colour);
  }
  return colour;
};

/** Red for more, blue for less; pale for small differences. */
export const deltaColour = (now: number, before: number): string => {
  const most = Math.max(Math.abs(now), Math.abs(before));
  if (most === 0 || now === before) return "hsl(220 8% 80%)";
  const share = Math.min(1, Math.abs(now - before) / most);
  return now > before ? `hsl(14 80% ${86 - 32 * share}%)` : `hsl(214 75% ${86 - 30 * share}%)`;
};

/** The key of a function's colour: its full name, or its module if it has no name. */
type Named = { function: string | null; module: string | null };
const nameOf = (level: Named): string => level.function ?? level.module ?? "";

/**
 * Gives the next colour of the palette to a function that has none yet. A function keeps its colour. `giveColours` is called first, for the functions with the
 * highest costs in the whole session, so the colours do not depend on which view is opened first.
 */
const given = new Map<string, string>();
export const functionColour = (level: Named): string => {
  const name = nameOf(level);
  let colour = given.get(name);
  if (!colour) {
    colour = PALETTE[given.size % PALETTE.length] ?? OTHER;
    given.set(name, colour);
  }
  return colour;
};
export const giveColours = (levels: Named[]): void => levels.forEach(functionColour);

// The part of node that index.ts uses, so that its types need no package.
declare module "node:fs" {
  export const openSync: (path: string, flags: "r") => number;
  export const closeSync: (file: number) => void;
  export const fstatSync: (file: number) => { size: number };
  export const readSync: (file: number, out: Uint8Array, offset: number, length: number, position: number) => number;
  export const readFileSync: (path: URL) => Uint8Array;
}

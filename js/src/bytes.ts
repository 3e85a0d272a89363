// Files of each environment, as the engine reads them.
import type { Bytes } from "./engine";

/** Bytes that are in memory. */
export const fromMemory = (bytes: Uint8Array): Bytes => ({
  size: bytes.length,
  read: (at, out) => {
    const part = bytes.subarray(at, at + out.length);
    out.set(part);
    return part.length;
  },
});

/** The bytes of a slice that are read at once. A read across the slice's end returns fewer bytes. */
const SLICE = 1 << 20;

/** A file of a browser. Only workers can read one synchronously. At most one slice is in memory. */
export const fromBlob = (blob: Blob): Bytes => {
  const reader = new FileReaderSync();
  let first = 0;
  let kept = new Uint8Array(0);
  return {
    size: blob.size,
    read: (at, out) => {
      if (at < first || at >= first + kept.length) {
        first = at;
        kept = new Uint8Array(reader.readAsArrayBuffer(blob.slice(at, at + Math.max(SLICE, out.length))));
      }
      const part = kept.subarray(at - first, at - first + out.length);
      out.set(part);
      return part.length;
    },
  };
};

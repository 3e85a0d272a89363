// The module for programs, whose types are in ../index.d.ts: opens a trace and answers what `heaptrack print --view` answers. README.md describes it.
import { fromBlob, fromMemory } from "./bytes";
import type { Input, OpenOptions, ViewName, Words } from "../index";
import { type Bytes, Engine, Refused, Stopped } from "./engine";

export { Refused, Stopped };

/** An open trace. */
export class Trace {
  /** @internal */
  constructor(
    private readonly engine: Engine,
    private readonly number: number,
    readonly name: string,
    private readonly onClose: () => void,
  ) {}

  /** The answer of a view. `base` is the trace that the view `diff` compares with. */
  view(name: ViewName, words: Words = {}, base?: Trace): Record<string, unknown> {
    return JSON.parse(this.text(name, words, base)) as Record<string, unknown>;
  }

  /** The same as text: the bytes that `heaptrack print --view NAME` prints. */
  text(name: ViewName, words: Words = {}, base?: Trace): string {
    const list = Object.entries(words).flatMap(([word, value]) => (Array.isArray(value) ? value : [value]).map((one) => [word, String(one)] as const));
    if (base === undefined) return this.engine.view(this.number, name, list);
    if (base.engine !== this.engine) throw new Refused("The two traces were not opened with the same Heaptrack object.");
    return this.engine.view(this.number, name, [...list, ["compare", base.name]], base.number);
  }

  /** Frees its memory. */
  close(): void {
    this.engine.close(this.number);
    this.onClose();
  }
}

/** An engine. Traces that are compared must be opened with the same one. */
export class Heaptrack {
  private constructor(private readonly engine: Engine) {}

  static async create(wasm?: OpenOptions["wasm"]): Promise<Heaptrack> {
    return new Heaptrack(new Engine(wasm instanceof WebAssembly.Module ? wasm : await WebAssembly.compile((wasm ?? (await ownModule())) as BufferSource)));
  }

  /**
   * Opens a trace of heaptrack or of KDE's heaptrack, or a heap profile of another tool: the path of a file (node), a File or Blob, or its bytes. A file is read
   * in slices, except a Blob outside of a worker.
   */
  async open(source: Input, options: Pick<OpenOptions, "name"> = {}): Promise<Trace> {
    const { bytes, name, close } = await bytesOf(source);
    const shown = options.name ?? name;
    const number = this.engine.open(shown, bytes);
    while (this.engine.work(64));
    // Throws if the file is no trace.
    this.engine.view(number, "summary", []);
    return new Trace(this.engine, number, shown, close);
  }

  /** The bytes of memory that the engine has. */
  get memory(): number {
    return this.engine.memory;
  }
}

/** Opens one trace with an engine of its own. */
export const open = async (source: Input, options: OpenOptions = {}): Promise<Trace> => (await Heaptrack.create(options.wasm)).open(source, options);

type Opened = { bytes: Bytes; name: string; close: () => void };

const bytesOf = async (source: Input): Promise<Opened> => {
  const nothing = (): void => {};
  if (typeof source === "string") return fromPath(source);
  if (source instanceof Uint8Array) return { bytes: fromMemory(source), name: "trace", close: nothing };
  if (source instanceof ArrayBuffer) return { bytes: fromMemory(new Uint8Array(source)), name: "trace", close: nothing };
  const name = "name" in source ? String(source.name) : "trace";
  const bytes = typeof FileReaderSync === "undefined" ? fromMemory(new Uint8Array(await source.arrayBuffer())) : fromBlob(source);
  return { bytes, name, close: nothing };
};

const fromPath = async (path: string): Promise<Opened> => {
  const { closeSync, fstatSync, openSync, readSync } = await import("node:fs");
  const file = openSync(path, "r");
  const read = (at: number, out: Uint8Array): number => readSync(file, out, 0, out.length, at);
  return { bytes: { size: fstatSync(file).size, read }, name: path, close: () => closeSync(file) };
};

const ownModule = async (): Promise<ArrayBuffer | Uint8Array> => {
  const place = new URL("./heaptrack.wasm", import.meta.url);
  if (place.protocol !== "file:") return await (await fetch(place)).arrayBuffer();
  const { readFileSync } = await import("node:fs");
  return readFileSync(place);
};

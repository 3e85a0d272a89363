// The types of heaptrack-trace. README.md has examples.

/** A question that has no answer, or a file that is no trace. The message is a sentence for people. */
export declare class Refused extends Error {}

/** The engine has stopped: a mistake in heaptrack, or not enough memory. It answers nothing more. */
export declare class Stopped extends Error {}

/** Words of docs/views.md and their values, such as `{ from: "50%", include: ["cache", "index"] }`. */
export type Words = Record<string, string | number | readonly (string | number)[]>;

/** The views of docs/views.md. */
export type ViewName =
  | "summary" | "stacks" | "profile" | "bottom-up" | "top-down" | "callers" | "flame" | "timeline" | "sizes" | "lifetimes"
  | "threads" | "allocators" | "processes" | "memory" | "leaks" | "source" | "suppressions" | "diff";

/** The path of a file (node), a File or Blob of a browser, or the bytes of a file. */
export type Input = string | Blob | Uint8Array | ArrayBuffer;

export type OpenOptions = {
  /** The name in messages and in answers. The default is that of the file. */
  name?: string;
  /** The engine, if it is not beside the module: its bytes, or the compiled module. */
  wasm?: Uint8Array | ArrayBuffer | WebAssembly.Module;
};

/** An open trace. */
export declare class Trace {
  private constructor();
  readonly name: string;
  /** The answer of a view. `base` is the trace that the view `diff` compares with. */
  view(name: ViewName, words?: Words, base?: Trace): Record<string, unknown>;
  /** The same as text: the bytes that `heaptrack print --view NAME` prints. */
  text(name: ViewName, words?: Words, base?: Trace): string;
  /** Frees its memory. */
  close(): void;
}

/** An engine. Traces that are compared must be opened with the same one. */
export declare class Heaptrack {
  private constructor();
  static create(wasm?: OpenOptions["wasm"]): Promise<Heaptrack>;
  /** Opens a trace of heaptrack or of KDE's heaptrack, or a heap profile of another tool. */
  open(source: Input, options?: Pick<OpenOptions, "name">): Promise<Trace>;
  /** The bytes of memory that the engine has. */
  get memory(): number;
}

/** Opens one trace with an engine of its own. */
export declare const open: (source: Input, options?: OpenOptions) => Promise<Trace>;

// The engine: an instance of the WebAssembly module that `crates/viewer` is built to.
//
// Receives: the module, files and questions. Returns: texts. Must hold: after a trap (a panic, or no more memory) the instance is not called again; every later
// call throws the same error.

/** A file, or bytes in memory. Both are read synchronously and in slices. */
export interface Bytes {
  readonly size: number;
  /** Reads bytes from a position on and returns how many were read. */
  read(at: number, out: Uint8Array): number;
}

/** A question that has no answer. The message is a sentence for people. */
export class Refused extends Error {}

/** The engine has stopped: a mistake in heaptrack, or not enough memory. */
export class Stopped extends Error {}

type Exports = {
  memory: WebAssembly.Memory;
  start(): void;
  input(length: number): number;
  output(): number;
  output_length(): number;
  open(file: number, length: number): number;
  close(number: number): void;
  work(blocks: number): number;
  answer(): number;
  configure(): number;
  suppress(): number;
  view(number: number, base: number): number;
};

export class Engine {
  private readonly files = new Map<number, Bytes>();
  private readonly exports: Exports;
  private nextFile = 0;
  private panic = "";
  private stopped: Stopped | undefined;

  constructor(module: WebAssembly.Module) {
    const imports = {
      read: (file: number, at: number, out: number, length: number): number => {
        try {
          return this.files.get(file)?.read(at, new Uint8Array(this.exports.memory.buffer, out, length)) ?? -1;
        } catch {
          return -1;
        }
      },
      panicked: (text: number, length: number): void => {
        this.panic = new TextDecoder().decode(new Uint8Array(this.exports.memory.buffer, text, length).slice());
      },
    };
    this.exports = new WebAssembly.Instance(module, { heaptrack: imports }).exports as unknown as Exports;
    this.exports.start();
  }

  /** The bytes of memory that the engine has. */
  get memory(): number {
    return this.exports.memory.buffer.byteLength;
  }

  /** Begins to read a file and returns its number. */
  open(name: string, bytes: Bytes): number {
    const file = this.nextFile++;
    this.files.set(file, bytes);
    return this.call(() => {
      this.put(name);
      return this.exports.open(file, bytes.size);
    });
  }

  close(number: number): void {
    this.call(() => this.exports.close(number));
    this.files.delete(number);
  }

  /** Reads at most this many blocks. Returns false if no file is being read. */
  work(blocks: number): boolean {
    return this.call(() => this.exports.work(blocks)) !== 0;
  }

  /** Answers a question of the page. */
  answer(view: string, query: string): string {
    return this.ask(`${view}\n${query}`, () => this.exports.answer());
  }

  /** Replaces the user's rules and suppressions: JSON, which is `Settings` in crates/answers/src/options.rs. */
  configure(json: string): string {
    return this.ask(json, () => this.exports.configure());
  }

  suppress(text: string): string {
    return this.ask(text, () => this.exports.suppress());
  }

  /** The text that `heaptrack print --view` prints. */
  view(number: number, view: string, words: readonly (readonly [string, string])[], base = -1): string {
    return this.ask([view, ...words.flat()].join("\0"), () => this.exports.view(number, base));
  }

  private ask(input: string, question: () => number): string {
    const [status, text] = this.call(() => {
      this.put(input);
      return [question(), this.take()] as const;
    });
    if (status !== 0) throw new Refused(text);
    return text;
  }

  private put(text: string): void {
    const bytes = new TextEncoder().encode(text);
    const place = this.exports.input(bytes.length);
    new Uint8Array(this.exports.memory.buffer, place, bytes.length).set(bytes);
  }

  private take(): string {
    return new TextDecoder().decode(new Uint8Array(this.exports.memory.buffer, this.exports.output(), this.exports.output_length()));
  }

  private call<T>(what: () => T): T {
    if (this.stopped) throw this.stopped;
    try {
      return what();
    } catch (error) {
      // Without the text of a panic, an allocation failed.
      this.stopped = new Stopped(this.panic ? `This question made heaptrack stumble (${this.panic}). Please report it with the trace.` : "There is not enough memory.", { cause: error });
      throw this.stopped;
    }
  }
}

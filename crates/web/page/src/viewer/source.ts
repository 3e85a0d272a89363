// The source of answers in the viewer: the engine in this worker, and the files that the user chose.
//
// Must hold: a file is read in slices, and requests are answered while it is read. If the engine stops, because of a mistake or because memory ran out, another one
// takes its place and reads the files again, except a file that was being read.
//
// A report is the viewer with a trace, its settings and the texts of sources inside (`Carried`). That trace is the one with the number 0.
import { fromBlob, fromMemory } from "../../../../../js/src/bytes";
import { type Bytes, Engine, Refused, Stopped } from "../../../../../js/src/engine";
import type { Answer, Source } from "../work/source";
import { Refusal } from "../work/source";

/** Blocks that are read at once, and the milliseconds after which requests are answered. */
const BLOCKS = 4;
const TURN = 30;

/** The text of one of the user's files, and its name in messages. */
type NamedText = { name: string; text: string };
/** The user's rules and suppressions. */
type Settings = { rules: NamedText | null; suppressions: NamedText[] };

/** What a report carries besides its trace. crates/web/src/with_engine.rs writes it. */
export type Carried = {
  /** The name of the trace. */
  name: string;
  /** True if the trace is packed with gzip, because it was not packed already. */
  isPacked: boolean;
  settings: Settings;
  /** Texts of source files, by path. */
  sources: Record<string, string>;
  /** Sentences about what was left out. */
  notes: string[];
};

type Opened = { file: File; failed?: string };
type Status = Answer & { traces: ({ state: string; error: string | null } | null)[] };

export class Browser implements Source {
  readonly isReport = false;
  private readonly module: WebAssembly.Module;
  private engine: Engine;
  /** By their numbers in the engine. Undefined for one that was closed. */
  private readonly files: (Opened | undefined)[] = [];
  private settings: Settings;
  private isReading = false;
  /** The file that was read last. */
  private latest = 0;

  constructor(
    wasm: ArrayBuffer,
    private readonly carried: Carried | undefined,
  ) {
    this.module = new WebAssembly.Module(wasm);
    this.settings = carried?.settings ?? { rules: null, suppressions: [] };
    this.engine = this.newEngine();
  }

  private newEngine(): Engine {
    const engine = new Engine(this.module);
    engine.configure(JSON.stringify(this.settings));
    return engine;
  }

  async get(view: string, trace: number, query: string): Promise<Answer> {
    if (view === "source-text" && trace === 0 && this.carried) {
      const file = new URLSearchParams(query).get("file") ?? "";
      const text = this.carried.sources[file];
      if (text !== undefined) return { file, text };
    }
    const answer = JSON.parse(this.ask(() => this.engine.answer(view, `trace=${trace}${query ? `&${query}` : ""}`))) as Answer;
    void this.read();
    return view === "status" ? { ...this.withFailures(answer as Status), notes: this.carried?.notes ?? [] } : answer;
  }

  async suppress(text: string): Promise<Answer> {
    const answer = JSON.parse(this.ask(() => this.engine.suppress(text))) as Answer;
    this.settings.suppressions.push({ name: "the chosen file", text });
    return answer;
  }

  /** Replaces the user's rules by those of a file. If they are wrong, the old ones stay. */
  async rules(file: File): Promise<Answer> {
    const settings = { ...this.settings, rules: { name: file.name, text: await file.text() } };
    const answer = JSON.parse(this.ask(() => this.engine.configure(JSON.stringify(settings)))) as Answer;
    this.settings = settings;
    return answer;
  }

  add(file: File): number {
    const number = this.files.length;
    this.files.push({ file });
    this.ask(() => this.engine.open(file.name, this.bytes(file, number)));
    void this.read();
    return number;
  }

  /** Returns how many files are left. */
  remove(trace: number): number {
    this.ask(() => this.engine.close(trace));
    this.files[trace] = undefined;
    return this.files.filter((file) => file !== undefined).length;
  }

  private bytes(file: File, number: number): Bytes {
    const bytes = fromBlob(file);
    return {
      size: bytes.size,
      read: (at, out) => {
        this.latest = number;
        return bytes.read(at, out);
      },
    };
  }

  /** Reads the files that are not read yet, with pauses in which requests are answered. */
  private async read(): Promise<void> {
    if (this.isReading) return;
    this.isReading = true;
    try {
      for (let began = performance.now(); this.engine.work(BLOCKS); ) {
        if (performance.now() - began < TURN) continue;
        await new Promise((done) => setTimeout(done));
        began = performance.now();
      }
    } catch (error) {
      this.replace(error as Error);
    } finally {
      this.isReading = false;
    }
  }

  private ask<T>(question: () => T): T {
    try {
      return question();
    } catch (error) {
      if (error instanceof Stopped) this.replace();
      if (error instanceof Refused || error instanceof Stopped) throw new Refusal(error.message);
      throw error;
    }
  }

  /** `reason`: why the engine could not read the file that it was reading. */
  private replace(reason?: Error): void {
    const one = this.files[this.latest];
    if (one && reason) one.failed = `${one.file.name} cannot be read in this browser: ${reason.message} On Linux: heaptrack analyze ${one.file.name}`;
    this.engine = this.newEngine();
    this.files.forEach((opened, number) => {
      this.engine.open(opened?.file.name ?? "", opened && !opened.failed ? this.bytes(opened.file, number) : fromMemory(new Uint8Array(0)));
      if (!opened) this.engine.close(number);
    });
    void this.read();
  }

  private withFailures(status: Status): Answer {
    this.files.forEach((opened, number) => {
      const trace = status.traces[number];
      if (trace && opened?.failed) Object.assign(trace, { state: "failed", error: opened.failed });
    });
    return status;
  }
}

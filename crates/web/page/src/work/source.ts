// Where answers come from: the server, or the report that the page was opened with.
//
// Both give the answers of docs/views.md. A server is exact to the event; a report knows 256 slices of time, and says which of them it used.
import type { ReportData } from "./report";
import { Report } from "./report";

export type Answer = Record<string, unknown>;

export interface Source {
  get(view: string, trace: number, query: string): Promise<Answer>;
  /** What was computed for a trace that has grown since is of no use. */
  readonly isReport: boolean;
}

/** A sentence for people. */
export class Refusal extends Error {}

export class Server implements Source {
  readonly isReport = false;

  constructor(private readonly base: string) {}

  async get(view: string, trace: number, query: string): Promise<Answer> {
    let response: Response;
    try {
      response = await fetch(`${this.base}api/${view}?trace=${trace}${query ? `&${query}` : ""}`, { credentials: "same-origin" });
    } catch {
      throw new Refusal("The server does not answer: was `heaptrack analyze` stopped? Start it again and reload this page.");
    }
    const body = (await response.json().catch(() => ({ error: `The server said ${response.status} and nothing more.` }))) as Answer;
    if (!response.ok) throw new Refusal(String(body.error ?? `The server said ${response.status}.`));
    return body;
  }
}

export const open = (from: { base: string } | { report: ReportData }): Source => ("report" in from ? new Report(from.report) : new Server(from.base));

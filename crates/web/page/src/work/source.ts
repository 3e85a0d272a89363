// The source of answers: the server, or the report that contains the page.
//
// Both return the answers of docs/views.md. A server is exact to the event. A report has at most 256 slices of time. It moves a range to the borders of slices, and the
// answer's `range` says to which.
import type { ReportData } from "./report";
import { Report } from "./report";

export type Answer = Record<string, unknown>;

export interface Source {
  get(view: string, trace: number, query: string): Promise<Answer>;
  /** Adds suppressions, in LeakSanitizer's format. */
  suppress(text: string): Promise<Answer>;
  /** True for a report, false for a server. */
  readonly isReport: boolean;
}

/** An error with a sentence for people. */
export class Refusal extends Error {}

export class Server implements Source {
  readonly isReport = false;

  constructor(private readonly base: string) {}

  get(view: string, trace: number, query: string): Promise<Answer> {
    return this.request(`${view}?trace=${trace}${query ? `&${query}` : ""}`, {});
  }

  suppress(text: string): Promise<Answer> {
    return this.request("suppressions", { method: "POST", body: text, headers: { "content-type": "text/plain" } });
  }

  private async request(address: string, how: RequestInit): Promise<Answer> {
    let response: Response;
    try {
      response = await fetch(`${this.base}api/${address}`, { ...how, credentials: "same-origin" });
    } catch {
      throw new Refusal("Can't reach heaptrack. Was `heaptrack analyze` stopped? Start it again and reload this page.");
    }
    const body = (await response.json().catch(() => ({ error: `heaptrack answered with the error ${response.status}, without a reason.` }))) as Answer;
    if (!response.ok) throw new Refusal(String(body.error ?? `heaptrack answered with the error ${response.status}.`));
    return body;
  }
}

export const open = (from: { base: string } | { report: ReportData }): Source => ("report" in from ? new Report(from.report) : new Server(from.base));

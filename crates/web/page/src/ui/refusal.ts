// Checks a filter before it gets into the address, so that a half-typed expression leaves the page unchanged.
import { ask } from "../client";
import { type State, timeless } from "../state";
import type { TraceStatus } from "./context";

const REGEX = /^(?:(?:function|file|module):)?\/(.*)\/$/s;
export const isRegex = (pattern: string): boolean => REGEX.test(pattern);

/** The engine's reason why the filters of this state are invalid; undefined if they are valid. A report has no engine, so there the browser's regular expressions decide. */
export const refusalOf = async (next: State, trace: TraceStatus, isReport: boolean): Promise<string | undefined> => {
  try {
    if (isReport) for (const pattern of [...next.include, ...next.exclude]) new RegExp(REGEX.exec(pattern)?.[1] ?? "");
    else await ask("raw", { view: "suppressions", trace: next.file, query: timeless(next), version: trace.version });
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
};

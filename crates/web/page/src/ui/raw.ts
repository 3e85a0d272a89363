// Answers of the engine that are shown unchanged.
import { useEffect, useState } from "preact/hooks";
import { ask } from "../client";
import { type Answered, useAnswer, useAsk } from "../store";
import { usePage, versionOf } from "./context";

/** How many milliseconds a query must stay unchanged before a request that walks all events is sent. */
const PATIENCE = 250;

/** The query without the comparison, because answers that are shown unchanged are about one trace. */
const alone = (query: string, domain: string): string => {
  const words = new URLSearchParams(query);
  for (const word of ["compare", "normalise"]) words.delete(word);
  if (domain !== "malloc") words.set("domain", domain);
  return words.toString();
};

/** Requests an answer about the open trace. If `view` is undefined, nothing is requested. */
export const useRaw = (view: string | undefined, query: string): Answered<Record<string, unknown>> => {
  const { state, ask: about } = usePage();
  return useAsk("raw", view === undefined ? undefined : { view, trace: state.file, query: alone(query, state.domain), version: about.version });
};

/** Like `useRaw`, for several traces. The answers are in the order of `traces`. */
export const useRaws = (view: string, query: string, traces: number[]): Answered<Record<string, unknown>[]> => {
  const { state, status } = usePage();
  const words = alone(query, state.domain);
  const versions = traces.map((trace) => versionOf(status, trace));
  const all = (): Promise<Record<string, unknown>[]> => Promise.all(traces.map((trace, index) => ask("raw", { view, trace, query: words, version: versions[index] ?? 0, wait: true })));
  return useAnswer(() => (traces.length === 0 ? undefined : all()), [view, words, versions.join(), traces.join()]);
};

/** Like `useRaw`, but sends the request only after the query has not changed for `PATIENCE` milliseconds, so not while the user drags. */
export const usePatient = (view: string, query: string): Answered<Record<string, unknown>> => {
  const [settled, set] = useState(query);
  useEffect(() => {
    const timer = setTimeout(() => set(query), PATIENCE);
    return () => clearTimeout(timer);
  }, [query]);
  const answer = useRaw(view, settled);
  // An older answer must not be shown beside newer numbers.
  return settled === query && !answer.busy ? answer : { value: undefined, error: undefined, busy: true };
};

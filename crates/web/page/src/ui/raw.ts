// Answers of the engine that are shown as they are.
import { useEffect, useState } from "preact/hooks";
import { ask } from "../client";
import { type Answered, useAnswer, useAsk } from "../store";
import { usePage } from "./context";

/** Milliseconds that a question must stand before one is asked that walks all events. */
const PATIENCE = 250;

/** What such a view is compared to does not change it. */
const alone = (query: string, domain: string): string => {
  const words = new URLSearchParams(query);
  for (const word of ["compare", "normalise"]) words.delete(word);
  if (domain === "custom") words.set("domain", "custom");
  return words.toString();
};

/** `view`: none is asked for when undefined. */
export const useRaw = (view: string | undefined, query: string): Answered<Record<string, unknown>> => {
  const { state, ask: about } = usePage();
  return useAsk("raw", view === undefined ? undefined : { view, trace: state.file, query: alone(query, state.domain), version: about.version });
};

/** The same of several traces, in their order. */
export const useRaws = (view: string, query: string, traces: number[]): Answered<Record<string, unknown>[]> => {
  const { state, ask: about } = usePage();
  const words = alone(query, state.domain);
  const { version } = about;
  const all = (): Promise<Record<string, unknown>[]> => Promise.all(traces.map((trace) => ask("raw", { view, trace, query: words, version, wait: true })));
  return useAnswer(() => (traces.length === 0 ? undefined : all()), [view, words, version, traces.join()]);
};

/** The same, but not while somebody drags. */
export const usePatient = (view: string, query: string): Answered<Record<string, unknown>> => {
  const [settled, set] = useState(query);
  useEffect(() => {
    const timer = setTimeout(() => set(query), PATIENCE);
    return () => clearTimeout(timer);
  }, [query]);
  const answer = useRaw(view, settled);
  // An older answer would stand beside newer numbers.
  return settled === query && !answer.busy ? answer : { value: undefined, error: undefined, busy: true };
};

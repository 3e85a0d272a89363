// Answers of the engine that are shown as they are.
import { useEffect, useState } from "preact/hooks";
import { type Answered, useAsk } from "../store";
import { usePage } from "./context";

/** Milliseconds that a question must stand before one is asked that walks all events. */
const PATIENCE = 250;

/** `view`: none is asked for when undefined. What such a view is compared to does not change it. */
export const useRaw = (view: string | undefined, query: string, trace?: number): Answered<Record<string, unknown>> => {
  const { state, ask } = usePage();
  const words = new URLSearchParams(query);
  for (const word of ["compare", "normalise"]) words.delete(word);
  if (state.domain === "custom") words.set("domain", "custom");
  return useAsk("raw", view === undefined ? undefined : { view, trace: trace ?? state.file, query: words.toString(), version: ask.version });
};

/** The same, but not while somebody drags. */
export const usePatient = (view: string, query: string): Answered<Record<string, unknown>> => {
  const [settled, set] = useState(query);
  useEffect(() => {
    const timer = setTimeout(() => set(query), PATIENCE);
    return () => clearTimeout(timer);
  }, [query]);
  const answer = useRaw(view, settled);
  return settled === query ? answer : { value: undefined, error: undefined, busy: true };
};

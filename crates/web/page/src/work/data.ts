// The stacks and costs that belong to a query. The latest answers are kept (`Kept`).
//
// Receives: a trace and a query. Returns: stacks and costs; for two traces, both joined to one set. Must hold: the same query has the same answer
// while the trace does not grow.
import { type Normal, isOtherTrace } from "../state";
import { join } from "./join";
import { Kept } from "./kept";
import { normalised } from "./normal";
import { type Columns, type Profile, type ProfileAnswer, read, total } from "./profile";
import type { Ask, Requests, Totals } from "./protocol";
import { type Answer, Refusal, type Source, open } from "./source";
import { Stacks, type StacksAnswer } from "./stacks";

export type Data = { stacks: Stacks; profile: Profile; answer: ProfileAnswer };

let source: Source | undefined;
const allStacks = new Kept<Stacks>();
const allData = new Kept<Data>();
const allRaw = new Kept<Answer>();

export const begin = (what: Parameters<typeof open>[0]): void => {
  source = open(what);
};

const from = (): Source => {
  if (!source) throw new Refusal("Nothing is open yet.");
  return source;
};

/** Returns the only part of a query that decides which stacks a trace has: the domain. */
const domainOf = (words: URLSearchParams): string => (words.get("domain") === "custom" ? "domain=custom" : "");

const stacksOf = (trace: number, domain: string, version: number): Promise<Stacks> =>
  allStacks.get(`${trace} ${domain} ${version}`, async () => new Stacks((await from().get("stacks", trace, domain)) as unknown as StacksAnswer));

export const named = ({ trace, query, version }: Ask): string => `${trace} ${version} ${query}`;

export const dataOf = (ask: Ask): Promise<Data> =>
  allData.get(named(ask), async () => {
    const words = new URLSearchParams(ask.query);
    const [stacks, answer] = await (isOtherTrace(words.get("compare")) ? both(ask, words) : one(ask, words));
    const suppressed = words.get("suppressions") === "off" ? undefined : stacks.answer.stacks.suppressed;
    // A server has already applied `include` and `exclude`. For a report they are applied here.
    const keep = from().isReport ? stacks.matching(words.getAll("include"), words.getAll("exclude")) : undefined;
    const profile = read(answer as ProfileAnswer, suppressed, keep);
    const how = words.get("normalise") as Normal | null;
    return { stacks, answer: answer as ProfileAnswer, profile: how ? normalised(profile, how, answer as ProfileAnswer) : profile };
  });

const one = (ask: Ask, words: URLSearchParams): Promise<[Stacks, Answer]> => Promise.all([stacksOf(ask.trace, domainOf(words), ask.version), from().get("profile", ask.trace, ask.query)]);

/** Requests stacks and costs of this trace and of the base, which is another trace, and joins them. */
const both = async (ask: Ask, words: URLSearchParams): Promise<[Stacks, Answer]> => {
  const other = Number(words.get("compare"));
  const same = new URLSearchParams(words);
  for (const word of ["compare", "normalise"]) same.delete(word);
  const domain = domainOf(words);
  await Promise.all([ready(ask.trace, domain), ready(other, domain)]);
  const [stacks, base, now, before] = await Promise.all([
    stacksOf(ask.trace, domain, ask.version),
    stacksOf(other, domain, 0),
    from().get("profile", ask.trace, same.toString()) as Promise<ProfileAnswer>,
    from().get("profile", other, same.toString()) as Promise<ProfileAnswer>,
  ]);
  const columns = (answer: ProfileAnswer): Columns => (answer.profile ?? answer) as Columns;
  const moved = { ...columns(before), stack: columns(before).stack.map((stack) => stack + stacks.count) } as Columns;
  return [new Stacks(join(stacks.answer, base.answer), stacks.answer.levels.function.length), { ...now, base: moved, base_range: before.range }];
};

/** Waits until a trace is loaded. The request for its status makes the server load it, if it was only found in the same folder. */
const ready = async (trace: number, domain: string): Promise<void> => {
  for (;;) {
    const status = (await from().get("status", trace, domain)) as { traces: ({ state: string; error: string | null } | null)[] };
    const found = status.traces[trace];
    if (found?.state === "failed") throw new Refusal(found.error ?? "The trace to compare with cannot be read.");
    if (found?.state === "ready" || found?.state === "live") return;
    if (!found) throw new Refusal("There is no such trace to compare with.");
    await new Promise((done) => setTimeout(done, 100));
  }
};

export const totalsOf = ({ profile, answer }: Data): Totals => ({
  sums: total(profile.sums),
  base: profile.base && total(profile.base),
  answer: answer.totals,
  from_ns: answer.range?.from_ns ?? 0,
  to_ns: answer.range?.to_ns ?? 0,
});

/** An unchanged answer of the engine. `wait`: waits for a trace of the same folder that may not be loaded yet. */
export const raw = ({ view, trace, query, version, wait }: Requests["raw"]["args"]): Promise<Answer> => {
  if (view === "status") return from().get(view, trace, query);
  return allRaw.get(`${view} ${trace} ${version} ${query}`, async () => {
    if (wait) await ready(trace, domainOf(new URLSearchParams(query)));
    return from().get(view, trace, query);
  });
};

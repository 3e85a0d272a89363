// The stacks and costs that belong to a query. The latest answers are kept (`Kept`).
//
// Receives: a trace and a query. Returns: stacks and costs; for two traces, both joined to one set. Must hold: the same query has the same answer
// while the trace does not grow.
import { type Normal, isOtherTrace } from "../state";
import { join } from "./join";
import { Kept } from "./kept";
import { normalised } from "./normal";
import { Pairs, type PairsAnswer } from "./pairing";
import { type Columns, type Profile, type ProfileAnswer, read, total } from "./profile";
import type { Ask, Requests, Totals } from "./protocol";
import { type Answer, Refusal, type Source } from "./source";
import { Stacks, type StacksAnswer } from "./stacks";

export type Data = { stacks: Stacks; profile: Profile; answer: ProfileAnswer };

let source: Source | undefined;
const allStacks = new Kept<Stacks>();
const allData = new Kept<Data>();
const allPairs = new Kept<Pairs>();
const allRaw = new Kept<Answer>();

export const begin = (opened: Source): void => {
  source = opened;
};

const from = (): Source => {
  if (!source) throw new Refusal("Nothing is open yet.");
  return source;
};

/** Returns the only part of a query that decides which stacks a trace has: the domain. */
const domainOf = (words: URLSearchParams): string => (words.has("domain") ? `domain=${words.get("domain")}` : "");

/** The words that decide which level owns the memory of a stack, and the views that heed them. */
const OWNING = ["wrapper", "not-wrapper"];
const OWNERS = ["summary", "stacks", "timeline", "sizes", "leaks", "diff"];

/** The part of a query that decides the answer of the view `stacks`. `beside`: the trace that this one is compared with. A wrapper that was found in that trace counts
 * in this one, too. */
const stacksQuery = (words: URLSearchParams, beside?: number): string => {
  const asked = new URLSearchParams(domainOf(words));
  for (const word of OWNING) for (const name of words.getAll(word)) asked.append(word, name);
  if (beside !== undefined) asked.append("compare", String(beside));
  return asked.toString();
};

/** The query without words that the view would refuse. */
const heeded = (view: string, query: string): string => {
  if (OWNERS.includes(view)) return query;
  const words = new URLSearchParams(query);
  for (const word of OWNING) words.delete(word);
  return words.toString();
};

/**
 * The stacks of a trace that the costs are about. A live trace may have grown between the two answers. The number of a stack does not change, so stacks that were
 * requested after the costs contain all of them.
 */
const stacksFor = async (costs: Promise<ProfileAnswer>, trace: number, asked: string, version: number | string): Promise<Stacks> => {
  const name = `${trace} ${asked} ${version}`;
  const make = async (): Promise<Stacks> => new Stacks((await from().get("stacks", trace, asked)) as unknown as StacksAnswer);
  const [stacks, answer] = await Promise.all([allStacks.get(name, make), costs]);
  const isThere = (stack: number): boolean => stack < stacks.count;
  return columns(answer).stack.every(isThere) && (answer.base?.stack.every(isThere) ?? true) ? stacks : allStacks.again(name, make);
};

const columns = (answer: ProfileAnswer): Columns => (answer.profile ?? answer) as Columns;

export const named = ({ trace, query, version, base }: Ask): string => `${trace} ${version} ${base} ${query}`;

export const dataOf = (ask: Ask): Promise<Data> =>
  allData.get(named(ask), async () => {
    const words = new URLSearchParams(ask.query);
    const [stacks, answer] = await (isOtherTrace(words.get("compare")) ? both(ask, words) : one(ask, words));
    const suppressed = words.get("suppressions") === "off" ? undefined : stacks.answer.stacks.suppressed;
    // A server has already applied `include` and `exclude`. For a report they are applied here.
    const keep = from().isReport ? stacks.matching(words.getAll("include"), words.getAll("exclude")) : undefined;
    const profile = read(answer, suppressed, keep);
    const how = words.get("normalise") as Normal | null;
    return { stacks, answer, profile: how ? normalised(profile, how, answer) : profile };
  });

const costsOf = (trace: number, query: string): Promise<ProfileAnswer> => from().get("profile", trace, heeded("profile", query)) as Promise<ProfileAnswer>;

const one = (ask: Ask, words: URLSearchParams): Promise<[Stacks, ProfileAnswer]> => {
  const costs = costsOf(ask.trace, ask.query);
  return Promise.all([stacksFor(costs, ask.trace, stacksQuery(words), ask.version), costs]);
};

/** Requests stacks and costs of this trace and of the base, which is another trace, and joins them. */
const both = async (ask: Ask, words: URLSearchParams): Promise<[Stacks, ProfileAnswer]> => {
  const other = Number(words.get("compare"));
  const same = new URLSearchParams(words);
  for (const word of ["compare", "normalise"]) same.delete(word);
  const domain = domainOf(words);
  const [, version] = await Promise.all([ready(ask.trace, domain), ready(other, domain)]);
  const costs = [costsOf(ask.trace, same.toString()), costsOf(other, same.toString())] as const;
  const versions = `${ask.version} ${version}`;
  const [stacks, base, now, before] = await Promise.all([
    stacksFor(costs[0], ask.trace, stacksQuery(words, other), versions),
    stacksFor(costs[1], other, stacksQuery(words, ask.trace), versions),
    ...costs,
  ]);
  const moved = { ...columns(before), stack: columns(before).stack.map((stack) => stack + stacks.count) } as Columns;
  const pairs = await pairsOf(ask, []);
  return [new Stacks(join(stacks.answer, base.answer), { border: stacks.answer.levels.function.length, pairs }), { ...now, base: moved, base_range: before.range }];
};

/** Which functions of this trace and of the base are the same. `earlier`: further traces that are compared with the same base, and have their names already. */
export const pairsOf = ({ trace, query, version, base }: Ask, earlier: number[]): Promise<Pairs> => {
  const words = new URLSearchParams(query);
  const asked = new URLSearchParams({ compare: words.get("compare") ?? "" });
  if (words.has("domain")) asked.set("domain", words.get("domain") ?? "");
  if (earlier.length > 0) asked.set("runs", earlier.join(","));
  return allPairs.get(`${trace} ${version} ${base} ${asked}`, async () => new Pairs((await from().get("pairs", trace, asked.toString())) as unknown as PairsAnswer));
};

/** Waits until a trace is loaded, and returns its version. The request for its status makes the server load it, if it was only found in the same folder. */
const ready = async (trace: number, domain: string): Promise<number> => {
  for (;;) {
    const status = (await from().get("status", trace, domain)) as { traces: ({ state: string; error: string | null; version: number } | null)[] };
    const found = status.traces[trace];
    if (found?.state === "failed") throw new Refusal(found.error ?? "The trace to compare with cannot be read.");
    if (found?.state === "ready" || found?.state === "live") return found.version;
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

/** Adds suppressions. The versions of all traces grow. */
export const suppress = ({ text }: Requests["suppress"]["args"]): Promise<Answer> => from().suppress(text);

/** An unchanged answer of the engine. `wait`: waits for a trace of the same folder that may not be loaded yet. */
export const raw = ({ view, trace, query, version, wait }: Requests["raw"]["args"]): Promise<Answer> => {
  if (view === "status") return from().get(view, trace, query);
  return allRaw.get(`${view} ${trace} ${version} ${query}`, async () => {
    if (wait) await ready(trace, domainOf(new URLSearchParams(query)));
    return from().get(view, trace, heeded(view, query));
  });
};

// Scales the base of a comparison, for runs of different length or with different amounts of work.
//
// Receives: the costs of a trace and of its base. Returns: the same costs, with the base scaled to this trace's length, to its number of allocations, or to
// its total of each cost. Must hold: this trace's own costs stay as they were recorded, so that every view of a comparison still adds up to the open trace.
import { SUMS, WIDTH, at } from "../costs";
import type { Normal } from "../state";
import { type Profile, type ProfileAnswer, total } from "./profile";

type Range = { from_ns: number; to_ns: number } | undefined;
const length = (range: Range): number => (range ? range.to_ns - range.from_ns : 0);
const calls = (sums: Float64Array): number => (sums[at("allocations")] ?? 0) || (sums[at("live_allocations")] ?? 0);

/** The factor for each column of the base. It is 1 if the column cannot be scaled, for example because the length of a trace is 0. */
const factors = (profile: Profile, how: Normal, answer: ProfileAnswer): Float64Array => {
  const now = total(profile.sums);
  const before = total(profile.base ?? new Float64Array(WIDTH));
  const ratio = (a: number, b: number): number => (a > 0 && b > 0 ? a / b : 1);
  switch (how) {
    case "second":
      return new Float64Array(WIDTH).fill(ratio(length(answer.range), length(answer.base_range)));
    case "allocation":
      return new Float64Array(WIDTH).fill(ratio(calls(now), calls(before)));
    case "share":
      return Float64Array.from(SUMS, (_, place) => ratio(now[place] ?? 0, before[place] ?? 0));
  }
};

export const normalised = (profile: Profile, how: Normal, answer: ProfileAnswer): Profile => {
  const by = factors(profile, how, answer);
  return { ...profile, base: profile.base?.map((amount, place) => amount * (by[place % WIDTH] ?? 1)) };
};

/** The divisor that turns an amount of this trace into one per second, per thousand allocations, or into a share of 1. */
export const unit = (how: Normal | undefined, sums: Float64Array, range: Range, sum: number): number => {
  switch (how) {
    case "second":
      return length(range) / 1e9 || 1;
    case "allocation":
      return calls(sums) / 1000 || 1;
    case "share":
      return sum || 1;
    default:
      return 1;
  }
};

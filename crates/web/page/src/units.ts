// Numbers for people: units are powers of 1000 (kB, MB), the decimal sign is a point, thousands are separated by commas.

const scaled = (value: number, units: string[], space: string): string => {
  const sign = value < 0 ? "−" : "";
  let number = Math.abs(value);
  let unit = 0;
  while (number >= 999.95 && unit + 1 < units.length) {
    number /= 1000;
    unit += 1;
  }
  const digits = unit === 0 ? (Number.isInteger(number) ? 0 : 1) : number < 10 ? 2 : 1;
  return `${sign}${number.toFixed(digits)}${units[unit] ? space + units[unit] : ""}`;
};

export const bytes = (value: number): string => scaled(value, ["B", "kB", "MB", "GB", "TB", "PB"], " ");
/** Exact up to seven digits, so that the numbers of one table have the same form. */
export const count = (value: number): string => (Math.abs(value) < 10_000_000 ? exact(value) : short(value));
/** For the marks of an axis, where space is limited. */
export const short = (value: number): string => scaled(value, ["", "k", "M", "G", "T"], " ");

/** Every digit, in groups of three. */
export const exact = (value: number): string => {
  const text = Math.abs(Math.round(value))
    .toString()
    .replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return value < 0 ? `−${text}` : text;
};

/** A number with a noun: 1 block, 2 blocks. */
export const several = (value: number, noun: string): string => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

export const time = (ns: number): string => {
  const sign = ns < 0 ? "−" : "";
  const abs = Math.abs(ns);
  if (abs === 0) return "0 s";
  if (abs < 1e3) return `${sign}${abs.toFixed(0)} ns`;
  if (abs < 1e6) return `${sign}${(abs / 1e3).toPrecision(3)} µs`;
  if (abs < 1e9) return `${sign}${trim((abs / 1e6).toPrecision(3))} ms`;
  if (abs < 60e9) return `${sign}${trim((abs / 1e9).toFixed(abs < 10e9 ? 3 : 2))} s`;
  const seconds = Math.round(abs / 1e9);
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const two = (n: number | undefined): string => String(n ?? 0).padStart(2, "0");
  return parts[0] ? `${sign}${parts[0]} h ${two(parts[1])} min ${two(parts[2])} s` : `${sign}${parts[1]} min ${two(parts[2])} s`;
};

const trim = (text: string): string => (text.includes("e") ? String(Number(text)) : text);

/** The time of events is known to 0.1 ms, so a shorter life has no exact number. */
export const lifetime = (ns: number): string => (ns < 1e5 ? "< 0.1 ms" : time(ns));

export const percent = (share: number): string => {
  if (!Number.isFinite(share)) return "";
  const value = share * 100;
  const abs = Math.abs(value);
  if (abs === 0) return "0 %";
  if (abs < 0.1) return value < 0 ? "−<0.1 %" : "<0.1 %";
  return `${value.toFixed(abs < 10 ? 1 : 0).replace("-", "−")} %`;
};

export const rate = (value: number, ns: number): string => (ns > 0 ? `${count(Math.round(value / (ns / 1e9)))}/s` : "");
export const byteRate = (value: number, ns: number): string => (ns > 0 ? `${bytes(value / (ns / 1e9))}/s` : "");

import type { Kind } from "./costs";

export const show = (value: number, kind: Kind): string => {
  switch (kind) {
    case "bytes":
      return bytes(value);
    case "count":
      return exact(value);
    case "time":
      return lifetime(value);
    case "ratio":
      return percent(value);
  }
};

/** A number with its sign. Rounding errors of a scaled comparison count as 0. */
export const signed = (value: number, kind: Kind): string => {
  const amount = Math.abs(value) < 1e-6 ? 0 : value;
  if (kind === "time" && amount < 0) return Math.abs(amount) < 1e5 ? lifetime(0) : `−${time(-amount)}`;
  return amount > 0 ? `+${show(amount, kind)}` : show(amount, kind);
};

/** The short form of a number. If that form rounds bytes or a time, all digits follow in brackets. */
export const full = (value: number, kind: Kind): string => {
  const short = show(value, kind);
  if (kind === "bytes" && Math.abs(value) >= 1000) return `${short} (${exact(value)} B)`;
  if (kind === "time" && value >= 1e3) return `${short} (${exact(value)} ns)`;
  return short;
};

/** A round distance for about `wanted` marks on an axis up to `top`. */
export const step = (top: number, wanted: number): number => {
  if (!(top > 0)) return 1;
  const rough = top / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const lead = rough / power;
  return (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 2.5 ? 2.5 : lead <= 5 ? 5 : 10) * power;
};

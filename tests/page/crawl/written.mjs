// Whether a text shows a number. The text may round it, but may not show another number.

const FACTORS = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, k: 1e3, M: 1e6, G: 1e9, "%": 0.01, ns: 1, "µs": 1e3, ms: 1e6, s: 1e9 };
const NUMBER = /([−+-]?)(<?)\s*(\d[\d,]*(?:\.(\d+))?)\s*(kB|MB|GB|TB|B|%|ns|µs|ms|s\b|k\b|M\b|G\b)?/;

export const says = (text, value) => {
  const found = NUMBER.exec(text);
  // An empty text or a dash stands for 0, or for a mean of nothing.
  if (!found) return value === 0 && /^[–\s]*$/.test(text);
  const [, sign, below, digits, decimals = "", unit = ""] = found;
  const factor = FACTORS[unit] ?? 1;
  const number = Number(digits.replaceAll(",", "")) * factor * (sign === "−" || sign === "-" ? -1 : 1);
  if (below) return Math.abs(value) < Math.abs(number) + 1e-9;
  // Half of the last digit, plus rounding errors of the scaling.
  const step = factor * 10 ** -decimals.length;
  return Math.abs(number - value) <= step * 0.5001 + Math.abs(value) * 1e-9 + 1e-6 * (unit === "%" ? 0 : 1);
};

export const isNear = (found, wanted) => Math.abs(found - wanted) <= 1e-9 * Math.max(1, Math.abs(wanted)) || Math.abs(found - wanted) < 1e-6;

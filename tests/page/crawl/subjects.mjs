// The subjects of a crawl: traces of different kinds, and what can be asked about each.

/** `patterns` and `functions` are taken from the programs. `custom` is the share of states about blocks of custom allocators. `isReport` is true for one file without a server. */
export const SUBJECTS = {
  screens: {
    traces: ["screens", "screens-before"],
    patterns: ["function:token", "function:worker", "first_way", "main", "/tok(en|yo)/", "file:screens.c", "function:/^(cache|hump)$/", "module:libc", "no such thing"],
    functions: ["main", "token", "cache", "worker", "hump", "nobody"],
    custom: 0,
    isReport: false,
  },
  pool: {
    traces: ["pool", "pool-before"],
    patterns: ["function:take", "main", "file:pool.c", "/^(take|main)$/", "module:libc", "no such thing"],
    functions: ["main", "take", "resize", "nobody"],
    custom: 0.6,
    isReport: false,
  },
  folded: {
    traces: ["folded", "folded-before"],
    patterns: ["function:make_3", "main", "file:renewal.c", "/make_[0-4]/", "module:libc", "no such thing"],
    functions: ["main", "make_3", "make_0", "nobody"],
    custom: 0,
    isReport: false,
  },
};

/** The same trace as a report. Only what the report contains can be asked, because it has no engine. */
export const asReport = (subject) => ({ ...subject, traces: subject.traces.slice(0, 1), isReport: true });

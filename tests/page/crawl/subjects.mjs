// The subjects of a crawl: traces of different kinds, and what can be asked about each.

/**
 * The trace `name` of a program, and the trace `name-before`, which is the base of comparisons. `patterns` and `functions` are taken from the program. `custom` is
 * the share of states about blocks of custom allocators. `isReport` is true for one file without a server.
 */
const subject = (name, patterns, functions, custom = 0) => ({ traces: [name, `${name}-before`], patterns, functions, custom, isReport: false });

export const SUBJECTS = {
  screens: subject(
    "screens",
    ["function:token", "function:worker", "first_way", "main", "/tok(en|yo)/", "file:screens.c", "function:/^(cache|hump)$/", "module:libc", "no such thing"],
    ["main", "token", "cache", "worker", "hump", "nobody"],
  ),
  pool: subject("pool", ["function:take", "main", "file:pool.c", "/^(take|main)$/", "module:libc", "no such thing"], ["main", "take", "resize", "nobody"], 0.6),
  folded: subject("folded", ["function:make_3", "main", "file:renewal.c", "/make_[0-4]/", "module:libc", "no such thing"], ["main", "make_3", "make_0", "nobody"]),
};

/** The same trace as a report. Only what the report contains can be asked, because it has no engine. */
export const asReport = (subject) => ({ ...subject, traces: subject.traces.slice(0, 1), isReport: true });

// What is crawled: traces of different kinds, and what can be asked of each.

/** `patterns` and `functions`: of the programs. `custom`: the share of states about blocks of custom allocators. `isReport`: one file without a server. */
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

/** The same trace as a report: of what needs an engine, only what the report carries can be asked. */
export const asReport = (subject) => ({ ...subject, traces: subject.traces.slice(0, 1), isReport: true });

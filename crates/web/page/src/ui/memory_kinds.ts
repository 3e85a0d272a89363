// The kinds of resident memory.

/** Name, colour and meaning of each kind. The colours have a contrast of at least 3:1 to the paper of both themes. */
const KINDS: Record<string, [string, string, string]> = {
  blocks: ["live blocks", "#d95f1e", "Resident bytes of live blocks, as many as the program requested"],
  overhead: ["added by the allocator", "#a87a00", "Headers and rounding of live blocks"],
  free: ["free in the allocator", "#7d8a12", "Resident memory of the allocator that no live block covers"],
  heap: ["the allocator's", "#d95f1e", "Resident memory of the allocator. Blocks were sampled, so how much of it is in live blocks is not known"],
  older: ["older than the attach", "#8a6f52", "Memory that the allocator had at the attach and that no block allocated since then covers"],
  mapped: ["mapped by the program", "#2f6fe4", "Private mappings of no file that the program made itself, by their callers: heaps of V8 and Java, Python's pools"],
  anonymous: ["other anonymous mappings", "#5a7a9e", "Private mappings of no file that are not the allocator's, and that no recorded call explains"],
  stack: ["stacks", "#8e6fd8", "Stacks of threads"],
  file: ["files", "#1b8f6b", "Mapped files: code, data, and files that the program maps itself"],
  shared: ["shared memory", "#1487a8", "Memory files, /dev/shm, System V, shared anonymous mappings"],
  kernel: ["kernel", "#6b7689", "Pages that the kernel maps into every process"],
  recorder: ["heaptrack's own", "#b8356f", "Memory that exists only because of the recording"],
  unattributed: ["unattributed", "#c9372c", "Memory that changed while it was measured, or pages that could not be read"],
};
/** A newer version may record kinds that this one does not know. */
export const kindOf = (kind: string): [string, string, string] => KINDS[kind] ?? [kind, "#6b7689", kind];

# `nim c -d:heaptracker`: the blocks of Nim's own allocator are reported to heaptrack, with Nim stacks.
#
# Nim 1.6 has no hook in its allocator, so this makes a copy of the compiler's own lib/system/alloc.nim with two calls in it, and lets
# the compiler take that. The header comes from `heaptrack lib --install FOLDER`; say where with -d:heaptrackInclude=FOLDER.
# Nothing is linked: the program runs where heaptrack is not installed.
import std/[compilesettings, os, strutils]

const heaptrackInclude {.strdefine.} = ""

proc change(text: var string, line, other: string) =
  doAssert text.count(line) == 1, "the lib/system/alloc.nim of this Nim is not known here; it has no line\n" & line
  text = text.replace(line, other)

if defined(heaptracker) and not defined(useMalloc):
  let system = querySetting(SingleValueSetting.libPath) / "system"
  var allocator = readFile(system / "alloc.nim")
  # From where the copy stands its neighbour is not to be seen.
  allocator.change "include osalloc\n", "include \"" & system / "osalloc" & "\"\n"
  const alloc = "proc rawAlloc(a: var MemRegion, requestedSize: int): pointer =\n"
  allocator.change alloc, """
proc heaptrackReportAlloc(p: pointer, size: int) {.importc: "heaptrack_report_alloc", header: "heaptrack_api.h".}
proc heaptrackReportFree(p: pointer) {.importc: "heaptrack_report_free", header: "heaptrack_api.h".}

""" & alloc
  const allocEnd = "  when logAlloc: cprintf(\"var pointer_%p = alloc(%ld)"
  allocator.change allocEnd, "  heaptrackReportAlloc(result, requestedSize)\n" & allocEnd
  const dealloc = "proc rawDealloc(a: var MemRegion, p: pointer) =\n"
  allocator.change dealloc, dealloc & "  heaptrackReportFree(p)\n"
  # A path by which heaptrack, too, knows it for a part of Nim.
  let place = nimcacheDir() / "nim" / "lib" / "system"
  mkDir place
  let patched = place / "alloc.nim"
  writeFile patched, allocator
  patchFile "stdlib", "alloc", patched
  if heaptrackInclude != "":
    switch "passC", "-I" & quoteShell(heaptrackInclude)

# With `nim c -d:heaptracker`, Nim's own allocator reports its blocks to heaptrack, with Nim stacks. With -d:useMalloc nothing changes.
#
# Nim 1.6 has no hook in its allocator. So this script copies the compiler's own lib/system/alloc.nim, adds two calls to the copy, and makes
# the compiler use it. The header comes from `heaptrack lib --install FOLDER`; -d:heaptrackInclude=FOLDER says where it is.
# Nothing is linked: the program runs where heaptrack is not installed.
import std/[compilesettings, os, strutils]

const heaptrackInclude {.strdefine.} = ""

proc change(text: var string, line, other: string) =
  doAssert text.count(line) == 1, "the lib/system/alloc.nim of this Nim is not known here; it must have this line exactly once:\n" & line
  text = text.replace(line, other)

if defined(heaptracker) and not defined(useMalloc):
  let system = querySetting(SingleValueSetting.libPath) / "system"
  var allocator = readFile(system / "alloc.nim")
  # The copy is in another folder, so it includes osalloc.nim by its full path.
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
  # heaptrack recognises code of Nim's library by "/nim/lib/" in its path, so the path of the copy has that, too.
  let place = nimcacheDir() / "nim" / "lib" / "system"
  mkDir place
  let patched = place / "alloc.nim"
  writeFile patched, allocator
  patchFile "stdlib", "alloc", patched
  if heaptrackInclude != "":
    switch "passC", "-I" & quoteShell(heaptrackInclude)

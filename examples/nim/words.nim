## Counts words, keeps the 60 that occur more than 20 times, and with -d:nimTypeNames prints the counts of Nim's own allocator.
##
##   nim c -d:release --debugger:native words.nim                     Nim's allocator, unreported
##   nim c -d:release --debugger:native -d:useMalloc words.nim        malloc: heaptrack sees everything
##   nim c -d:release --debugger:native -d:heaptracker words.nim      Nim's allocator, reported (config.nims)
import std/[strutils, tables]

type Word = ref object
  text: string
  seen: int

var kept: seq[Word]

proc keep(text: string) =
  kept.add Word(text: text, seen: 1)

proc count(text: string): CountTable[string] =
  for word in text.splitWhitespace:
    result.inc word

proc run() =
  var text = ""
  for n in 0 ..< 2000:
    text.add "word" & $(n mod 97) & " "
  for word, seen in count(text):
    if seen > 20:
      keep(word)

proc printf(format: cstring) {.importc, header: "<stdio.h>", varargs.}

run()
# C's printf takes nothing from Nim's allocator, so printing does not change the numbers that are printed.
printf("kept %ld\n", kept.len)
when defined(nimTypeNames) and not defined(useMalloc):
  let (allocations, deallocations) = getMemCounters()
  printf("allocations=%ld deallocations=%ld\n", allocations, deallocations)
when defined(nimAllocStats):
  printf("%s\n", cstring($getAllocStats()))
quit 0

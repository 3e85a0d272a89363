# `build` makes one Shelf and calls `fill`, which adds 100 strings ("book number 0" ...) to a sequence that grows. Prints "100".
# The test builds it with -d:useMalloc, so Nim uses libc's allocator.
type Shelf = ref object
  books: seq[string]

proc fill(shelf: Shelf, count: int) {.noinline.} =
  for i in 0 ..< count:
    shelf.books.add("book number " & $i) # line: fill

proc build(): Shelf {.noinline.} =
  result = Shelf(books: @[])
  result.fill(100) # line: build

let shelf = build() # line: module
echo shelf.books.len

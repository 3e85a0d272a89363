# In Nim: build -> fill, which makes 100 strings ("book number 0" ...) and lets a sequence of them grow; one Shelf. Built
# by the test with -d:useMalloc, so that Nim's allocator is libc's.
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

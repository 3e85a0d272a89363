-- 100 coroutines in turns, in compiled code: 100 * 10 * 10 blocks.
local ffi = require("ffi")
ffi.cdef("long zoo_blocks(long);")
local library = ffi.load(arg[1])
local threads = {}
for i = 1, 100 do
  threads[i] = coroutine.wrap(function()
    local sum = 0
    for _ = 1, 10 do
      coroutine.yield(0)
      for _ = 1, 10 do sum = sum + tonumber(library.zoo_blocks(1)) end
    end
    return sum
  end)
  threads[i]()
end
print("ready")
io.stdout:flush()
io.read()
local sum = 0
for _ = 1, 10 do
  for i = 1, 100 do sum = sum + threads[i]() end
end
print(sum)

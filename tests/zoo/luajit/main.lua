-- 100 coroutines in turns, in compiled code: 100 * 10 * 10 blocks.
local ffi = require("ffi")
ffi.cdef("long zoo_blocks(long);")
local library = ffi.load(arg[1])
local in_turns = dofile(arg[0]:match("^.*/") .. "../blocks/turns.lua")
in_turns(function()
  local sum = 0
  for _ = 1, 10 do sum = sum + tonumber(library.zoo_blocks(1)) end
  return sum
end)

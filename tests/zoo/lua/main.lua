-- 100 coroutines in turns, with an error caught in each turn: 100 * 10 * 10 blocks.
local blocks = package.loadlib(arg[1], "luaopen_zoo")()
local in_turns = dofile(arg[0]:match("^.*/") .. "../blocks/turns.lua")
in_turns(function()
  local sum
  pcall(function() sum = blocks(10); error("thrown") end)
  return sum
end)

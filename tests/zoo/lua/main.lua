-- 100 coroutines in turns, with an error caught in each turn: 100 * 10 * 10 blocks.
local blocks = package.loadlib(arg[1], "luaopen_zoo")()
local threads = {}
for i = 1, 100 do
  threads[i] = coroutine.wrap(function()
    local sum = 0
    for _ = 1, 10 do
      coroutine.yield(0)
      pcall(function() sum = sum + blocks(10); error("thrown") end)
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

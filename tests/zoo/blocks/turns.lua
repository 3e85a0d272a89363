-- 100 coroutines in turns. Each calls `turn` ten times, and the sum of what the calls return is printed.
return function(turn)
  local threads = {}
  for i = 1, 100 do
    threads[i] = coroutine.wrap(function()
      local sum = 0
      for _ = 1, 10 do
        coroutine.yield(0)
        sum = sum + turn()
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
end

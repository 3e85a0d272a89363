# Forks four children, which allocate and end, while its own work goes on: 10,000 blocks of its own, 400 of the children.
require_relative '../blocks/blocks'
ready
sum = 0
children = 4.times.map do |i|
  sum += BLOCKS.call(2000)
  fork { BLOCKS.call(100); exit!(i) }
end
sum += BLOCKS.call(2000)
puts children.map { |child| Process.wait2(child)[1].exitstatus }.sort.join(' ')
puts sum

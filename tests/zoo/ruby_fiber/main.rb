# 100 fibers, each on a stack of its own, which are resumed in turns: 100 * 10 * 10 blocks.
require_relative '../blocks/blocks'
fibers = 100.times.map do |i|
  Fiber.new do
    sum = 0
    10.times do
      Fiber.yield
      sum += BLOCKS.call(10) + ('x' * (i + 1)).size
    end
    sum
  end
end
fibers.each(&:resume)
ready
9.times { fibers.each(&:resume) }
puts fibers.sum(&:resume)

# Eight threads, each with fibers and exceptions of its own: 8 * 125 * 10 blocks.
require_relative '../blocks/blocks'
gate = Queue.new
threads = 8.times.map do
  Thread.new do
    gate.pop
    125.times.sum do |n|
      raise ArgumentError, n.to_s if n.odd?
      Fiber.new { BLOCKS.call(10) }.resume
    rescue ArgumentError
      BLOCKS.call(10)
    end
  end
end
ready
8.times { gate << true }
puts threads.sum(&:value)

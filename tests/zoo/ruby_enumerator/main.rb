# External enumerators, each of which runs its block on a fiber: 50 * 20 * 10 blocks.
require_relative '../blocks/blocks'
enumerators = 50.times.map do |i|
  Enumerator.new do |out|
    n = i
    loop { out << n + BLOCKS.call(10); n += 1 }
  end
end
enumerators.each(&:size)
ready
puts 20.times.sum { enumerators.sum(&:next) }
puts enumerators.first.lazy.select(&:even?).first(0).size

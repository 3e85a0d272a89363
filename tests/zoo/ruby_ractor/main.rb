# Four ractors, each with a thread and objects of its own. A string of 4320 characters is a block of 4321 bytes: 4 * 2500 of them.
def ready
  puts 'ready'
  $stdout.flush
  $stdin.gets
end
ractors = 4.times.map do
  Ractor.new { Ractor.receive.times.sum { 'a'.dup.ljust(4320, 'b').size } }
end
ready
ractors.each { |ractor| ractor.send(2500) }
puts ractors.sum(&:take)

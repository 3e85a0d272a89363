# The calls of malloc that the exact count is made of.
require 'fiddle'
BLOCKS = Fiddle::Function.new(Fiddle.dlopen(ARGV[0])['zoo_blocks'], [Fiddle::TYPE_LONG], Fiddle::TYPE_LONG)

def ready
  puts 'ready'
  $stdout.flush
  $stdin.gets
end

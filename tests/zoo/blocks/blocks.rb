# For the Ruby programs of the zoo: `BLOCKS.call(n)` is `zoo_blocks(n)` of blocks.c, and `ready` prints "ready" and
# waits for a line.
require 'fiddle'
BLOCKS = Fiddle::Function.new(Fiddle.dlopen(ARGV[0])['zoo_blocks'], [Fiddle::TYPE_LONG], Fiddle::TYPE_LONG)

def ready
  puts 'ready'
  $stdout.flush
  $stdin.gets
end

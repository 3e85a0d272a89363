// 100 fibers of D's runtime take turns, with an exception in each: 100 * 10 * 10 blocks.
import core.thread;
import std.stdio;

extern (C) long zoo_blocks(long count);

void main()
{
    long sum;
    Fiber[] fibers;
    foreach (i; 0 .. 100)
        fibers ~= new Fiber({
            foreach (turn; 0 .. 10)
            {
                Fiber.yield();
                try
                {
                    sum += zoo_blocks(10);
                    throw new Exception("thrown");
                }
                catch (Exception)
                {
                }
            }
        });
    foreach (fiber; fibers)
        fiber.call();
    writeln("ready");
    stdout.flush();
    readln();
    foreach (turn; 0 .. 10)
        foreach (fiber; fibers)
            fiber.call();
    writeln(sum);
}

<?php
// 100 fibers take turns: 100 * 10 * 10 blocks.
$blocks = FFI::cdef('long zoo_blocks(long);', $argv[1]);
$fibers = [];
for ($i = 0; $i < 100; $i++) {
    $fibers[$i] = new Fiber(function () use ($blocks) {
        $sum = 0;
        for ($n = 0; $n < 10; $n++) {
            Fiber::suspend();
            $sum += $blocks->zoo_blocks(10);
        }
        return $sum;
    });
    $fibers[$i]->start();
}
echo "ready\n";
fgets(STDIN);
for ($n = 0; $n < 10; $n++) {
    foreach ($fibers as $fiber) {
        $fiber->resume();
    }
}
echo array_sum(array_map(fn($fiber) => $fiber->getReturn(), $fibers)), "\n";

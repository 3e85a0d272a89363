// Allocates in the main thread and in two workers, and checks what it computes. Prints "ready", and "right" when stdin ends. If a
// check fails, or a worker ends, the program ends with code 97.
const { Worker, isMainThread } = require('worker_threads');
function work() {
    const made = {};
    for (let i = 0; i < 300; i++) made['k' + i] = Buffer.alloc(100 + i, i);
    for (let i = 0; i < 300; i++) if (made['k' + i].length !== 100 + i || made['k' + i][0] !== i % 256) process.exit(97);
    if (JSON.parse(JSON.stringify(Object.keys(made))).length !== 300) process.exit(97);
    setTimeout(work, 1);
}
work();
if (isMainThread) {
    // process.exit in a worker ends only that worker.
    for (let i = 0; i < 2; i++) new Worker(__filename).on('exit', () => process.exit(97));
    console.log('ready');
    process.stdin.on('end', () => { console.log('right'); process.exit(0); });
    process.stdin.resume();
}

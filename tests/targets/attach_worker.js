// Allocates in the main thread and in two workers, and checks what it computes. Prints "ready", and "right" when stdin ends. If a
// check fails in the main thread, it ends with code 97; in a worker, only that worker ends.
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
    new Worker(__filename);
    new Worker(__filename);
    console.log('ready');
    process.stdin.on('end', () => { console.log('right'); process.exit(0); });
    process.stdin.resume();
}

// Allocates 200 buffers, JSON text, an array and a map, and prints "ready". For each line on stdin it does that again and prints "done".
function work() {
    const made = [];
    for (let i = 0; i < 200; i++) made.push(Buffer.alloc(10000 + i));
    const text = JSON.stringify(made.map(m => m.length));
    return JSON.parse(text).length + new Float64Array(5000).length + new Map(made.entries()).size;
}
work();
process.stdout.write('ready\n');
process.stdin.on('data', () => { work(); process.stdout.write('done\n'); });

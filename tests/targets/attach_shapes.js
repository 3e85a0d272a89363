// Allocates in many ways when a line comes on stdin; then prints "done".
function work() {
    const made = [];
    for (let i = 0; i < 200; i++) made.push(Buffer.alloc(10000 + i));
    const text = JSON.stringify(made.map(m => m.length));
    return JSON.parse(text).length + new Float64Array(5000).length + new Map(made.entries()).size;
}
work();
process.stdout.write('ready\n');
process.stdin.on('data', () => { work(); process.stdout.write('done\n'); });

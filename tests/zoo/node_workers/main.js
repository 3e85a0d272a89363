// Four workers, each with its own isolate, and the main thread with asynchronous functions: 4 * 200 * 10 + 200 * 10
// blocks.
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const { blocks } = require(isMainThread ? process.argv[2] : workerData);

function work() {
  let sum = 0;
  for (let turn = 0; turn < 200; turn++) sum += blocks(10);
  return sum;
}

if (!isMainThread) {
  parentPort.once('message', () => parentPort.postMessage(work()));
  parentPort.postMessage(0);
} else {
  const workers = [];
  for (let i = 0; i < 4; i++) workers.push(new Worker(__filename, { workerData: process.argv[2] }));
  const next = (worker) => new Promise((done) => worker.once('message', done));
  (async () => {
    await Promise.all(workers.map(next));
    console.log('ready');
    await new Promise((done) => process.stdin.once('data', done));
    process.stdin.unref();
    const results = workers.map(next);
    workers.forEach((worker) => worker.postMessage('go'));
    let sum = 0;
    for (let turn = 0; turn < 200; turn++) {
      await null;
      sum += blocks(10);
    }
    for (const result of results) sum += await result;
    console.log(sum);
    process.exit(0);
  })();
}

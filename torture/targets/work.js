// Two workers and the event loop, in Node: work that is checked. "ping N" is answered by "pong N ROUNDS"; the end of the input ends it.
const { Worker, isMainThread, workerData } = require('worker_threads');
const crypto = require('crypto');
function round() {
  const table = {};
  for (let n = 0; n < 400; n++) table['k' + n] = [n, String(n).repeat(3)];
  return crypto.createHash('sha256').update(JSON.stringify(table)).digest('hex');
}
const right = round();
if (!isMainThread) {
  const counts = new Int32Array(workerData);
  while (!Atomics.load(counts, 0)) {
    if (round() !== right) Atomics.add(counts, 1, 1);
    Atomics.add(counts, 2, 1);
  }
} else {
  const shared = new SharedArrayBuffer(12);
  const counts = new Int32Array(shared);
  const workers = [0, 1].map(() => new Worker(__filename, { workerData: shared }));
  let late = 0;
  const timer = setInterval(() => { if (round() !== right) Atomics.add(counts, 1, 1); late++; }, 3);
  let up = 0;
  workers.forEach((worker) => worker.on('online', () => { if (++up === 2) console.log('ready'); }));
  const lines = require('readline').createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const words = line.split(' ');
    if (words[0] === 'ping') console.log('pong', words[1], Atomics.load(counts, 2) + late);
  });
  lines.on('close', () => {
    clearInterval(timer);
    Atomics.store(counts, 0, 1);
    Promise.all(workers.map((worker) => new Promise((done) => worker.on('exit', done)))).then(() => {
      process.exitCode = Atomics.load(counts, 1) || !Atomics.load(counts, 2) ? 8 : 0;
    });
  });
}

// For each request it compresses 100,000 bytes and keeps the result. zlib and Buffers use native memory; strings and objects are in V8's heap.
const http = require('http');
const zlib = require('zlib');

const port = Number(process.argv[2] || 8080);
const answers = [];

function answer(request, response) {
  const text = 'you asked for ' + request.url + '\n';
  zlib.gzip(Buffer.alloc(100000, text), (error, packed) => {
    answers.push(packed);
    response.end(text);
  });
}

const server = http.createServer(answer).listen(port, '127.0.0.1', () => console.log('listening on', port));
process.on('SIGTERM', () => server.close(() => process.exit(0)));

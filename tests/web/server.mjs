// Serves files of this machine to its browsers.
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.wasm': 'application/wasm' };

// `places`: the beginning of a URL's path -> a folder or a file; the first that fits counts.
export async function serve(places) {
  const server = http.createServer((request, response) => {
    const wanted = decodeURIComponent(new URL(request.url, 'http://localhost').pathname);
    const [start, place] = Object.entries(places).find(([begin]) => wanted.startsWith(begin)) ?? ['', ''];
    const file = path.join(place, wanted.slice(start.length) || (start.endsWith('/') ? 'index.html' : ''));
    const found = file.startsWith(place) && fs.statSync(file, { throwIfNoEntry: false });
    if (!found || !found.isFile()) return response.writeHead(404).end();
    response.writeHead(200, { 'content-type': TYPES[path.extname(file)] ?? 'application/octet-stream',
      'content-length': found.size, 'cache-control': 'no-cache' });
    fs.createReadStream(file).pipe(response);
  });
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  return {
    url: `http://localhost:${server.address().port}/`,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

// Fetches a file into the page's private storage (OPFS). Runs in a worker.

// A file that is there in full, by the length the server states, is not fetched again.
export async function store(url, name) {
  const response = await fetch(url, { cache: 'no-store' });  // no second copy in the browser's cache
  if (!response.ok) throw new Error(`${url} cannot be fetched: the server answered ${response.status}`);
  const expected = Number(response.headers.get('content-length') ?? NaN);
  const folder = await navigator.storage.getDirectory();
  const file = await (await folder.getFileHandle(name, { create: true })).createSyncAccessHandle();
  try {
    if (file.getSize() === expected) return await response.body.cancel();
    file.truncate(0);
    let at = 0;
    for (const reader = response.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      at += file.write(value, { at });
    }
    file.flush();
    if (at !== expected) throw new Error(`${url} ended after ${at} of ${expected} bytes`);
  } finally {
    file.close();
  }
}

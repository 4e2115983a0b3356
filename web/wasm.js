// Loads a wasm program whose imports may wait, by JSPI or by Asyncify, and gives it the few WASI calls that libc makes.

export function waitMode() {
  return typeof WebAssembly.Suspending === 'function' ? 'jspi' : 'asyncify';
}

// `host` are the imports of module "host", `waiting` the names of those that return promises. `call(name, ...args)`
// calls an export that may wait.
export async function loadProgram({ url, mode, host, waiting }) {
  const program = mode === 'jspi' ? await withJspi(url, host, waiting) : await withAsyncify(url, host, waiting);
  program.exports._initialize();

  // One call at a time: all calls share one stack in memory, which a second call would overwrite while the first waits.
  let last = Promise.resolve();
  const call = (name, ...args) => {
    const result = last.then(() => program.call(name, ...args));
    last = result.catch(() => {});
    return result;
  };
  return { exports: program.exports, call };
}

async function instantiate(url, host) {
  let memory = null;
  const program = await fetch(url);
  if (!program.ok) throw new Error(`${url} cannot be fetched: the server answered ${program.status}`);
  const { instance } = await WebAssembly.instantiateStreaming(program, { host, wasi_snapshot_preview1: wasi(() => memory.buffer) });
  memory = instance.exports.memory;
  return instance.exports;
}

const mapped = (host, waiting, wrap) =>
  Object.fromEntries(Object.entries(host).map(([name, f]) => [name, waiting.has(name) ? wrap(f) : f]));

// JSPI: the engine of the browser suspends the program.
async function withJspi(url, host, waiting) {
  const exports = await instantiate(url, mapped(host, waiting, (f) => new WebAssembly.Suspending(f)));
  const promising = {};
  return { exports, call: (name, ...args) => (promising[name] ??= WebAssembly.promising(exports[name]))(...args) };
}

// Asyncify: a build of the program that saves its stack, returns, and later runs again to the place where it was.
async function withAsyncify(url, host, waiting) {
  const RUNNING = 0, UNWINDING = 1, REWINDING = 2, STACK = 256 * 1024;
  let exports = null, saved = 0, pending = null, answer;
  const wrap = (f) => (...args) => {
    if (exports.asyncify_get_state() === REWINDING) {
      exports.asyncify_stop_rewind();
      return answer;
    }
    pending = f(...args);
    new Uint32Array(exports.memory.buffer, saved, 2).set([saved + 8, saved + STACK]);
    exports.asyncify_start_unwind(saved);
    return 0;
  };
  exports = await instantiate(url, mapped(host, waiting, wrap));
  const call = async (name, ...args) => {
    saved ||= exports.malloc(STACK);
    let result = exports[name](...args);
    while (exports.asyncify_get_state() === UNWINDING) {
      exports.asyncify_stop_unwind();
      answer = await pending;
      exports.asyncify_start_rewind(saved);
      result = exports[name](...args);
    }
    if (exports.asyncify_get_state() !== RUNNING) throw new Error('the program was left in the middle of a wait');
    return result;
  };
  return { exports, call };
}

// Console output and the end of the program; whatever else libc asks for is answered with "not supported".
function wasi(buffer) {
  const NOT_SUPPORTED = 52;
  const decoder = new TextDecoder();
  let line = '';
  const known = {
    fd_write(file, vectors, count, written) {
      const view = new DataView(buffer());
      let total = 0;
      for (let i = 0; i < count; i++) {
        const at = view.getUint32(vectors + 8 * i, true), length = view.getUint32(vectors + 8 * i + 4, true);
        line += decoder.decode(new Uint8Array(buffer(), at, length), { stream: true });
        total += length;
      }
      const lines = line.split('\n');
      line = lines.pop();
      for (const l of lines) console.log(l);
      view.setUint32(written, total, true);
      return 0;
    },
    proc_exit(code) { throw new Error(`the program ended with status ${code}`); },
  };
  return new Proxy(known, { get: (target, name) => target[name] ?? (() => NOT_SUPPORTED) });
}

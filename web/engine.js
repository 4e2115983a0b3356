// The engine in a worker: loads the program and turns its flat functions (src/web/entry.cpp) into a class.
//
//   const engine = await Engine.create();
//   await engine.load('model.gguf');                        // a file in the page's storage, see store.js
//   const prompt = await engine.tokenize('The three primary colours are');
//   for await (const { id, text } of engine.generate(prompt, 32)) ...
import { makeHost, waiting } from './host.js';
import { loadProgram, waitMode } from './wasm.js';

const PROGRAMS = { jspi: 'out/engine.wasm', asyncify: 'out/engine-asyncify.wasm' };
const DEVICES = { best: 0, gpu: 1, cpu: 2 };

export class Engine {
  #program;
  #engine;

  // `mode` is how the program waits: 'jspi', or 'asyncify' for browsers without it.
  static async create({ mode = waitMode() } = {}) {
    const engine = new Engine();
    const host = makeHost(() => engine.#program.exports.memory);
    engine.#program = await loadProgram({ url: new URL(PROGRAMS[mode], import.meta.url), mode, host, waiting });
    engine.#engine = await engine.#program.call('engine_make');
    return engine;
  }

  // Loads a model onto `device`: 'gpu', 'cpu', or the 'best' there is. `exact`: f32 all the way instead of the device's
  // fast kernels. Returns the device's name.
  async load(file, { device = 'best', exact = false } = {}) {
    return (await this.#call('engine_load', new TextEncoder().encode(file), DEVICES[device], +exact)).text;
  }

  async tokenize(text) {
    return (await this.#call('engine_tokenize', new TextEncoder().encode(text))).ids;
  }

  // At most `count` tokens after `prompt`, each the most likely one, as { id, text }: `text` is what the token
  // completes, never half a character. Ends at an end token unless `past` it is asked for.
  async *generate(prompt, count, { past = false } = {}) {
    await this.#call('engine_prompt', Uint32Array.from(prompt));
    for (let i = 0; i < count; i++) {
      const { ids: [id], text, ends } = await this.#call('engine_next');
      if (ends && !past) return;
      yield { id, text };
    }
  }

  // Bytes of the program's memory; models on a GPU are not in it.
  get memoryBytes() { return this.#program.exports.memory.buffer.byteLength; }

  async close() { await this.#program.call('engine_free', this.#engine); }

  // Calls a function of the program with a typed array (copied into its memory) and numbers; gives its answer.
  async #call(name, data, ...rest) {
    const { exports, call } = this.#program;
    let at = 0;
    const args = [];
    if (data) {
      at = exports.malloc(Math.max(data.byteLength, 1));
      new Uint8Array(exports.memory.buffer, at, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      args.push(at, data.length);
    }
    try {
      const answer = this.#answer(await call(name, this.#engine, ...args, ...rest));
      if (!answer.ok) throw new Error(answer.text);
      return answer;
    } finally {
      exports.free(at);
    }
  }

  // struct Answer of src/web/entry.cpp
  #answer(at) {
    const { buffer } = this.#program.exports.memory;
    const [ok, ends, text, textLength, ids, idCount] = new Uint32Array(buffer, at, 6);
    return {
      ok, ends,
      text: new TextDecoder().decode(new Uint8Array(buffer, text, textLength)),
      ids: new Uint32Array(buffer, ids, idCount).slice(),
    };
  }
}

// Answers one question at a time: { model, prompt, count, device, exact, mode, past } where model is a URL. `seconds` of
// the answer: to start the program, to load the model, to the first token (its kernels are compiled then).
import { Engine } from './engine.js';
import { store } from './store.js';

async function answer({ model, prompt, count = 32, device, exact, mode, past }) {
  const name = model.split('/').pop();
  await store(model, name);
  const start = performance.now(), since = () => (performance.now() - start) / 1000;
  const engine = await Engine.create({ mode });
  try {
    const started = since();
    const result = { device: await engine.load(name, { device, exact }), prompt: [...await engine.tokenize(prompt)], ids: [], text: '' };
    const seconds = { start: started, load: since() - started };
    for await (const { id, text } of engine.generate(result.prompt, Number(count), { past })) {
      seconds.first ??= since() - started - seconds.load;
      result.ids.push(id);
      result.text += text;
    }
    return { ...result, seconds, memory: engine.memoryBytes };
  } finally {
    await engine.close();
  }
}

onmessage = async ({ data }) => postMessage(await answer(data).catch((error) => ({ error: String(error?.message ?? error) })));

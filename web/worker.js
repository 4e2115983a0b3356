// Answers one question at a time: { model, prompt, count, device, exact, mode, past } where model is a URL.
import { Engine } from './engine.js';
import { store } from './store.js';

async function answer({ model, prompt, count = 32, device, exact, mode, past }) {
  const name = model.split('/').pop();
  await store(model, name);
  const engine = await Engine.create({ mode });
  try {
    const result = { device: await engine.load(name, { device, exact }), prompt: [...await engine.tokenize(prompt)], ids: [], text: '' };
    for await (const { id, text } of engine.generate(result.prompt, Number(count), { past })) {
      result.ids.push(id);
      result.text += text;
    }
    return { ...result, memory: engine.memoryBytes };
  } finally {
    await engine.close();
  }
}

onmessage = async ({ data }) => postMessage(await answer(data).catch((error) => ({ error: String(error?.message ?? error) })));

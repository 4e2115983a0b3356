// The engine in the browsers of this machine: the seam's functions, then tiny models whose greedy tokens must be those
// of the reference and of the native program. The last line is 'N passed, N failed'.
//   usage: node run.mjs [NATIVE]      NATIVE: the rullama program
// RULLAMA_TEST_DATA names another folder with models/ and expected/ than tests/data.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { findProgram, openChromium, openFirefox } from './browsers.mjs';
import { serve } from './server.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const data = path.resolve(process.env.RULLAMA_TEST_DATA ?? path.join(here, '../data'));
const native = process.argv[2];
const SMALL = 'g3-270m.q8_0';      // also on the CPU and without JSPI
const CLEAR = 'g3-270m-k.q4_k_m';  // also with the fast kernels: its margins are wide
const MODELS = [SMALL, CLEAR, 'g4-e2b.q4_0', 'g4-e2b-k.q4_k_m', 'g4-26b.q8_0'];
// Of the best logit over the second: below it rounding may choose. 8-bit activations were seen to turn one of 0.15.
const MARGIN = { exact: 1e-3, fast: 0.2 };
const TIMEOUT_S = 240;

let passed = 0, failed = 0;
function report(name, problem, seconds) {
  problem ? failed++ : passed++;
  console.log(`${problem ? 'FAIL' : 'ok  '} ${name}${seconds === undefined ? '' : ` (${seconds.toFixed(1)} s)`}${problem ? `: ${problem}` : ''}`);
}
// `run` returns what is wrong, or nothing.
async function check(name, run) {
  const start = performance.now();
  let timer;
  const late = new Promise((_, fail) => { timer = setTimeout(fail, TIMEOUT_S * 1000, new Error(`no answer in ${TIMEOUT_S} s`)); });
  const problem = await Promise.race([run(), late]).catch((error) => error.message);
  clearTimeout(timer);
  report(name, problem, (performance.now() - start) / 1000);
}

// The prompt called 'short' of a model's expected values, and its greedy tokens as far as they are beyond doubt.
function expected(model, precision) {
  const prompt = JSON.parse(fs.readFileSync(path.join(data, 'expected', `${model}.json`))).prompts.find((p) => p.id === 'short');
  const doubtful = prompt.greedy_margin.findIndex((margin) => margin <= MARGIN[precision]);
  const greedy = doubtful < 0 ? prompt.greedy : prompt.greedy.slice(0, doubtful);
  if (greedy.length < 8) throw new Error(`${model}: only ${greedy.length} greedy tokens are beyond doubt`);
  return { text: prompt.text, tokens: prompt.tokens, greedy };
}

function nativeTokens(model, prompt) {
  const args = ['run', path.join(data, 'models', `${model}.gguf`), '--tokens', prompt.tokens.join(','), '--raw', '--json', '--exact',
    '--device', 'cpu', '--temp', '0', '--ignore-eos', '-n', String(prompt.greedy.length)];
  return JSON.parse(execFileSync(native, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] })).tokens;
}

const differs = (what, got, wanted) => {
  const at = wanted.findIndex((id, i) => got[i] !== id);
  return at < 0 && got.length === wanted.length ? '' : `${what} differ at ${at < 0 ? wanted.length : at}: got ${got}, expected ${wanted}`;
};

async function checkModel(page, model, settings) {
  const wanted = expected(model, settings.exact === false ? 'fast' : 'exact');
  const got = await page.evaluate((question) => window.ask(question),
    { model: `/data/models/${model}.gguf`, prompt: wanted.text, count: wanted.greedy.length, exact: true, past: true, ...settings });
  if (got.error) return got.error;
  const { start, load, first } = got.seconds;
  console.log(`     ${got.device}: program ${start.toFixed(2)} s, load ${load.toFixed(2)} s, first token ${first.toFixed(2)} s, ` +
    `${got.ids.length} tokens, memory ${(got.memory / 1e6).toFixed(1)} MB`);
  return differs('prompt tokens', got.prompt, wanted.tokens) || differs('greedy tokens', got.ids, wanted.greedy) ||
    (native ? differs('native tokens', got.ids, nativeTokens(model, wanted)) : '') ||
    (/CPU/.test(got.device) !== (settings.device === 'cpu') ? `it ran on ${got.device}` : '');
}

async function checkBrowser(open, url, models) {
  const browser = await open();
  const { page } = browser;
  const named = (name) => `${browser.version}: ${name}`;
  try {
    await page.goto(url);
    await page.waitForFunction('window.ask');
    for (const { name, problem } of await page.evaluate(() => import('/data/host_checks.js').then((m) => m.checkHost())))
      report(named(name), problem);
    await check(named('the page has nothing to complain about'), () => noticeOf(page));
    for (const model of models) await check(named(`${model}, gpu`), () => checkModel(page, model, { device: 'gpu' }));
    await check(named(`${CLEAR}, gpu, fast`), () => checkModel(page, CLEAR, { device: 'gpu', exact: false }));
    await check(named(`${SMALL}, gpu, asyncify`), () => checkModel(page, SMALL, { device: 'gpu', mode: 'asyncify' }));
    await check(named(`${SMALL}, cpu`), () => checkModel(page, SMALL, { device: 'cpu' }));
  } finally {
    await browser.close();
  }
}

const noticeOf = (page) => page.evaluate(() => document.getElementById('notice').textContent);

async function checkWithoutGpu(url) {
  const browser = await openChromium({ webgpu: false });
  const { page } = browser;
  try {
    await page.goto(`${url}?model=/data/models/${SMALL}.gguf&prompt=the+river&count=2`);
    await check('without WebGPU the page says so and answers on the CPU', async () => {
      await page.waitForFunction('document.getElementById("out").textContent.startsWith("the river")');
      const notice = await noticeOf(page);
      return /no WebGPU adapter/.test(notice) ? '' : `the page says '${notice}'`;
    });
    const ask = (device) => page.evaluate((question) => window.ask(question),
      { model: `/data/models/${SMALL}.gguf`, prompt: 'the river', count: 1, exact: true, past: true, device });
    await check('without WebGPU the best device is the CPU', async () => {
      const got = await ask('best');
      return got.error ?? (/CPU/.test(got.device) ? '' : `it ran on ${got.device}`);
    });
    await check('without WebGPU a GPU is refused in words', async () => {
      const { error } = await ask('gpu');
      return /no WebGPU adapter/.test(error) ? '' : `the answer was ${error}`;
    });
    await check('a file that is no model is refused by name', async () => {
      const { error } = await page.evaluate((question) => window.ask(question), { model: '/data/host_checks.js', prompt: 'x', device: 'cpu' });
      return /host_checks\.js/.test(error) ? '' : `the answer was ${error}`;
    });
  } finally {
    await browser.close();
  }
}

const server = await serve({ '/data/host_checks.js': path.join(here, 'host_checks.js'), '/data/': data, '/': path.join(here, '../../web') });
try {
  await checkBrowser(openChromium, server.url, MODELS);
  await checkWithoutGpu(server.url);
  if (findProgram('firefox-esr', 'firefox')) await checkBrowser(openFirefox, server.url, MODELS.slice(0, 3));
  else console.log('Firefox is not installed: its checks are left out.');
} catch (error) {
  report('the browser', error.stack ?? String(error));
} finally {
  server.close();
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);

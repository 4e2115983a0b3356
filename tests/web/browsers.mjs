// The browsers of this machine, driven headless. A page of either has goto, evaluate(function, one argument) and
// waitForFunction(text).
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';

const fromWeb = createRequire(new URL('../../web/package.json', import.meta.url));

export function findProgram(...names) {
  const folders = process.env.PATH.split(path.delimiter);
  return names.flatMap((name) => folders.map((folder) => path.join(folder, name))).find((file) => fs.existsSync(file));
}

// `webgpu` false: a browser that offers no adapter.
export async function openChromium({ webgpu = true } = {}) {
  const { chromium } = fromWeb('playwright-core');
  const browser = await chromium.launch({
    executablePath: findProgram('chromium', 'google-chrome'),
    headless: true,
    args: ['--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
      ...(webgpu ? ['--enable-unsafe-webgpu'] : ['--disable-features=WebGPUService']),
      ...(process.getuid?.() === 0 ? ['--no-sandbox'] : [])],
  });
  const page = await (await browser.newContext()).newPage();
  return { page, version: `Chromium ${browser.version()}`, close: () => browser.close() };
}

export async function openFirefox() {
  const { default: puppeteer } = await import(fromWeb.resolve('puppeteer-core'));
  const browser = await puppeteer.launch({
    browser: 'firefox',
    executablePath: findProgram('firefox-esr', 'firefox'),
    headless: true,
    extraPrefsFirefox: { 'dom.webgpu.enabled': true, 'gfx.webgpu.ignore-blocklist': true },
  });
  return { page: await browser.newPage(), version: await browser.version(), close: () => browser.close() };
}

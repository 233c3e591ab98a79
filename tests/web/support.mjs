// What the tests of the page share: the browser, the cases, and what every page must keep to.
import { createRequire } from 'node:module';
import { join } from 'node:path';

import { check, checkEqual } from '../support/cases.mjs';

export { check, checkEqual, runCases } from '../support/cases.mjs';

export const kPageDir = new URL('../../src/server/web/', import.meta.url).pathname;

// A browser on a machine that compiles something else takes its time; what hangs, hangs longer.
const kWaitMs = 240_000;
const modules = process.env.MINKE_WEB_MODULES ?? process.cwd();
const { chromium } = createRequire(join(modules, 'package.json'))('playwright-core');

export function launch() {
  return chromium.launch({
    executablePath: process.env.MINKE_CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-software-rasterizer',
      '--disable-dev-shm-usage', '--renderer-process-limit=1'],
    timeout: kWaitMs,
  });
}

// A page whose requests and errors are watched. `allowed`: what the browser may complain of.
export async function openPage(browser, url, { allowed = null, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(kWaitMs);
  const page = await context.newPage();
  const faults = [];
  const origin = new URL(url).origin;
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== origin) faults.push(`asked for ${request.url()}`);
  });
  page.on('pageerror', (error) => faults.push(`threw ${error.message}`));
  page.on('console', (message) => {
    const text = message.text();
    // An answer may be an error by intent.
    if (message.type() !== 'error' || /Failed to load resource/.test(text)) return;
    if (allowed?.test(text)) return;
    faults.push(`complained: ${text}`);
  });
  await page.goto(url);
  const close = async () => {
    await context.close();
    checkEqual(faults, [], 'what the page should not do');
  };
  return { page, context, close };
}

// Writes to the model as a person does, and waits for the end of the answer.
export async function sendAndWait(page, text) {
  await page.fill('#message', text);
  await page.press('#message', 'Enter');
  await page.waitForSelector('#send:not([hidden])');
}

// The widths of the parts of a bar, as shares of its inside.
export function barShares(bar) {
  return bar.evaluate((node) => {
    for (const part of node.children) part.style.transition = 'none';
    return [...node.children].map(
      (part) => part.getBoundingClientRect().width / node.clientWidth);
  });
}

export function checkShares(found, detail, what) {
  const parts = [detail.cached_ram_tokens, detail.cached_disk_tokens, detail.replayed_tokens,
    detail.computed_tokens];
  const sum = parts.reduce((a, b) => a + b, 0);
  parts.forEach((tokens, i) => {
    const distance = Math.abs(found[i] - tokens / sum);
    check(distance < 0.005, `${what}: part ${i} is ${found[i]}, expected ${tokens / sum}`);
  });
}

// The web page in a real browser, against a scripted server (mock_server.mjs).
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

import { MockServer } from './mock_server.mjs';
import {
  barShares, check, checkEqual, checkShares, kPageDir, launch, openPage, runCases, sendAndWait,
} from './support.mjs';

const browser = await launch();
const kAnswer = '.turn.assistant:last-child';

// Runs `steps` on a page of a server of its own.
async function withPage(steps, { key = '', ...options } = {}) {
  const server = await new MockServer(kPageDir, key).start();
  try {
    const { page, context, close } = await openPage(browser, server.url, options);
    await steps(page, server, context);
    await close();
  } finally {
    server.stop();
  }
}

function textOf(page, selector) {
  return page.locator(selector).innerText();
}

// Not innerWidth: on a phone that grows with what does not fit.
async function overflow(page) {
  const { width } = page.viewportSize();
  return await page.evaluate(() => document.documentElement.scrollWidth) - width;
}

async function vendoredFilesAreThePublishedOnes() {
  const list = await readFile(join(kPageDir, 'vendor/VENDOR.md'), 'utf8');
  const rows = [...list.matchAll(/^\| (\S+\.(?:js|css)) \|.*\| ([0-9a-f]{64}) \|$/gm)];
  checkEqual(rows.length, 4, 'files in VENDOR.md');
  for (const [, name, digest] of rows) {
    const bytes = await readFile(join(kPageDir, 'vendor', name));
    checkEqual(createHash('sha256').update(bytes).digest('hex'), digest, name);
  }
}

async function streamIsSeenWhileItGrows() {
  await withPage(async (page, server) => {
    const release = server.hold();
    await page.fill('#message', 'What is a minke?');
    await page.press('#message', 'Enter');
    await page.waitForSelector(`${kAnswer} .answer strong`);
    checkEqual((await textOf(page, `${kAnswer} .answer`)).trim(), 'A minke whale', 'half');
    check(await page.isVisible('#stop'), 'there is a stop button while it streams');
    release();
    await page.waitForSelector('#send:not([hidden])');
    checkEqual(await page.locator(`${kAnswer} .answer li`).count(), 2, 'items of the list');
    checkEqual((await textOf(page, `${kAnswer} pre code`)).trim(), 'print("hello")', 'code');
    check((await page.textContent('#status')).includes('complete'), 'the end is announced');
  });
}

async function thinkingIsFoldedApart() {
  await withPage(async (page) => {
    await sendAndWait(page, 'What is a minke?');
    const thinking = page.locator(`${kAnswer} .thinking`);
    checkEqual(await thinking.getAttribute('open'), null, 'thinking is folded');
    check(!(await textOf(page, `${kAnswer} .answer`)).includes('whales.'), 'thinking is apart');
    check(await thinking.locator('pre').isHidden(), 'thinking is out of sight');
    await thinking.locator('summary').press('Enter');
    checkEqual(await thinking.locator('pre').innerText(), 'Let me think of whales.', 'thinking');
  });
}

async function requestSaysWhatTheSwitchesSay() {
  await withPage(async (page, server) => {
    await page.selectOption('#effort', '75');
    await sendAndWait(page, 'one');
    await page.uncheck('#thinking');
    await sendAndWait(page, 'two');
    const [first, second] = server.posts;
    checkEqual(first.body.thinking, { type: 'enabled' }, 'thinking');
    checkEqual(first.body.reasoning_effort, 75, 'effort');
    checkEqual([first.body.stream, first.body.stream_options], [true, { include_usage: true }],
      'stream');
    checkEqual(second.body.thinking, { type: 'disabled' }, 'thinking is off');
    checkEqual(second.body.reasoning_effort, undefined, 'effort without thinking');
    const session = first.headers['x-session-id'];
    check(/^web-[0-9a-f]{24}$/.test(session), `session id ${session}`);
    checkEqual(second.headers['x-session-id'], session, 'one session');
    checkEqual(second.body.messages.map((message) => message.role),
      ['user', 'assistant', 'user'], 'roles');
    checkEqual(second.body.messages[1].reasoning_content, 'Let me think of whales.',
      'replayed reasoning');
  });
}

async function barsShowTheNumbers() {
  await withPage(async (page, server) => {
    await sendAndWait(page, 'one');
    checkShares(await barShares(page.locator(`${kAnswer} .foot .bar`)),
      server.answers[0].detail, 'the bar of a cold answer');
    await sendAndWait(page, 'two');
    const { detail } = server.answers[1];
    checkShares(await barShares(page.locator(`${kAnswer} .foot .bar`)), detail, 'the bar below');
    const row = page.locator('#conversations li[aria-current]');
    await row.getByText('2 answers').waitFor();
    checkShares(await barShares(row.locator('.bar')), detail, 'the bar beside');
    const label = await row.locator('.bar').getAttribute('aria-label');
    check(label.includes('768 cached in memory') && label.includes('49 computed'), label);
    checkEqual(await row.locator('.tokens').innerText(),
      '896 cached (128 from disk), 16 replayed, 49 computed', 'tokens');
    check((await row.locator('.speed').innerText()).includes('31.0 tokens/s'), 'speed');
    check((await row.locator('.size').innerText()).includes('1.5 MiB came from memory'), 'size');
    check((await textOf(page, '#meters')).includes('4.0 MiB of 64 MiB'), 'memory');
    check((await textOf(page, '#meters')).includes('5.6 MiB'), 'disk');
  });
}

async function priceIsShown() {
  await withPage(async (page) => {
    await sendAndWait(page, 'one');
    checkEqual(await textOf(page, `${kAnswer} .price`), '$0.000034', 'price of an answer');
    await sendAndWait(page, 'two');
    const row = page.locator('#conversations li[aria-current]');
    await row.getByText('2 answers').waitFor();
    checkEqual(await row.locator('.price').innerText(), '$0.000045', 'price so far');
  });
}

async function toolCallsAreShownAndAnswered() {
  await withPage(async (page, server) => {
    await page.click('.settings summary');
    await page.fill('#tools', '[{"type":"function","function":{"name":"get_weather"}}]');
    await sendAndWait(page, 'the weather?');
    checkEqual(await textOf(page, `${kAnswer} .call .name`), 'get_weather', 'name');
    check((await textOf(page, `${kAnswer} .call pre`)).includes('"city": "Bergen"'), 'arguments');
    await page.fill(`${kAnswer} .result`, 'rain');
    await page.click(`${kAnswer} .results`);
    await page.getByText('The tool said: rain').waitFor();
    const { messages, tools } = server.posts[1].body;
    checkEqual(tools.length, 1, 'tools');
    checkEqual(messages[1].tool_calls[0].function,
      { name: 'get_weather', arguments: '{"city":"Bergen"}' }, 'call');
    checkEqual(messages[2], { role: 'tool', tool_call_id: 'call_1', content: 'rain' }, 'result');
  });
}

async function escapeStops() {
  await withPage(async (page, server) => {
    await page.fill('#message', 'endless');
    await page.press('#message', 'Enter');
    await page.getByText('on and on').waitFor();
    await page.keyboard.press('Escape');
    await page.waitForSelector('#send:not([hidden])');
    check((await textOf(page, `${kAnswer} .fault`)).includes('Stopped'), 'it says so');
    for (let i = 0; i < 100 && server.closedEarly === 0; ++i) await page.waitForTimeout(50);
    checkEqual(server.closedEarly, 1, 'connections that the page closed');
  });
}

async function lastTurnIsEdited() {
  await withPage(async (page, server) => {
    await sendAndWait(page, 'one');
    await sendAndWait(page, 'two');
    await page.press('#message', 'ArrowUp');
    checkEqual(await page.inputValue('#message'), 'two', 'text to edit');
    await sendAndWait(page, 'three');
    checkEqual(server.posts[2].body.messages.map((message) => message.content)
      .filter((text) => text === 'two').length, 0, 'the old turn is gone');
    await page.reload();
    checkEqual(await page.locator('.turn.user').count(), 2, 'turns after a reload');
    check((await page.locator('.turn.user').last().innerText()).includes('three'), 'edited turn');
  });
}

async function faultsAreSaid() {
  await withPage(async (page) => {
    await sendAndWait(page, 'refuse me');
    checkEqual(await textOf(page, `${kAnswer} .fault`), 'It is <b>too long</b>.', 'a 400');
    await sendAndWait(page, 'fail later');
    check((await textOf(page, kAnswer)).includes('It begins'), 'what came stays');
    checkEqual(await textOf(page, `${kAnswer} .fault`), 'The engine stalled.', 'a late error');
  });
}

async function hostileMarkdownIsHarmless() {
  await withPage(async (page) => {
    await sendAndWait(page, 'hostile');
    const found = await page.evaluate(() => {
      const root = document.querySelector('.turn.assistant .answer');
      const all = [...root.querySelectorAll('*')];
      return {
        tags: [...new Set(all.map((node) => node.localName))].filter((tag) => [
          'script', 'img', 'svg', 'iframe', 'style', 'form', 'input', 'math', 'div'].includes(tag)),
        handlers: all.flatMap((node) => node.getAttributeNames())
          .filter((name) => name.startsWith('on') || name === 'style' || name === 'id'),
        links: all.map((node) => node.getAttribute('href')).filter((href) => href !== null),
        classes: all.map((node) => node.getAttribute('class')).filter((name) => name !== null),
      };
    });
    checkEqual(found, { tags: [], handlers: [], links: ['https://example.invalid/page'],
      classes: [] }, 'what became of hostile text');
    for (const link of await page.locator(`${kAnswer} .answer a`).all()) {
      await link.dispatchEvent('mouseover');
    }
    checkEqual(await page.evaluate(() => window.attacked), undefined, 'attacks');
  });
}

// Should Markdown ever let markup through. The browser says of handlers that it parses, in a
// document that nobody sees, that it would not run them.
async function sanitiserAloneHolds() {
  await withPage(async (page) => {
    const html = await page.evaluate(async () => {
      const { sanitise } = await import('./markdown.js');
      const holder = document.createElement('div');
      holder.append(sanitise('<p onclick="a()" class="notice">x<script>1</script>' +
        '<img src=x onerror=1><a href="jav&#9;ascript:1">y</a><svg><a xlink:href="javascript:1">'));
      return holder.innerHTML;
    });
    checkEqual(html, '<p>x<a>y</a></p>', 'what the sanitiser leaves');
  }, { allowed: /^Executing inline event handler violates/ });
}

async function themeFollowsTheSystemAndTheButton() {
  const background = (page) => page.evaluate(
    () => getComputedStyle(document.body).backgroundColor);
  await withPage(async (page) => {
    checkEqual(await background(page), 'rgb(15, 22, 25)', 'dark');
    await page.click('#theme');
    checkEqual(await background(page), 'rgb(246, 248, 249)', 'light by the button');
    await page.reload();
    checkEqual(await background(page), 'rgb(246, 248, 249)', 'light after a reload');
  }, { colorScheme: 'dark' });
  await withPage(async (page) => {
    checkEqual(await background(page), 'rgb(246, 248, 249)', 'light');
  }, { colorScheme: 'light' });
}

async function phoneHasNoSidewaysScroll() {
  await withPage(async (page) => {
    await page.fill('#message', 'hostile and code');
    await page.click('#send');
    await page.waitForSelector('#send:not([hidden])');
    await page.fill('#message', 'word'.repeat(200));
    await page.click('#send');
    await page.waitForSelector('#send:not([hidden])');
    check(await page.isVisible(`${kAnswer} .foot .bar`), 'the bar is there');
    for (const view of ['chat', 'cache', 'totals']) {
      await page.click(`nav a[href="#${view}"]`);
      // The browser tells the page of its new address when it gets to it.
      await page.waitForSelector(`#${view}-view`);
      check(await overflow(page) <= 0, `${view} is ${await overflow(page)} px too wide`);
    }
  }, { viewport: { width: 360, height: 720 }, hasTouch: true, isMobile: true });
}

async function keyIsAskedForAndKept() {
  await withPage(async (page, server) => {
    await page.fill('#key', 'secret');
    await page.press('#key', 'Enter');
    await page.waitForSelector('#key-form', { state: 'hidden' });
    await sendAndWait(page, 'one');
    checkEqual(server.posts[0].headers.authorization, 'Bearer secret', 'key');
    const stored = await page.evaluate(
      () => JSON.stringify([{ ...localStorage }, document.cookie]));
    check(!stored.includes('secret'), 'the key outlives the tab');
    await page.reload();
    await page.waitForFunction(() => document.getElementById('server-line').textContent !== '');
    check(await page.isHidden('#key-form'), 'the key outlives a reload');
  }, { key: 'secret' });
}

async function keyboardReachesEverything() {
  await withPage(async (page) => {
    await page.waitForFunction(() => document.getElementById('server-line').textContent !== '');
    await page.focus('.skip');
    const order = ['#chat', '#cache', '#totals', 'theme', 'conversation', 'new', 'transcript',
      'message', 'thinking', 'effort', 'model', 'send', 'summary'];
    const seen = [];
    while (seen.length < order.length) {
      await page.keyboard.press('Tab');
      seen.push(await page.evaluate(() => {
        const node = document.activeElement;
        return node.id || node.hash || node.localName;
      }));
    }
    checkEqual(seen, order, 'order of the focus');
    await page.focus('.skip');
    await page.keyboard.press('Enter');
    checkEqual(await page.evaluate(() => document.activeElement.id), 'message', 'the skip link');
    await page.keyboard.type('first');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('second');
    checkEqual(await page.inputValue('#message'), 'first\nsecond', 'Shift+Enter makes a line');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#send:not([hidden])');
    checkEqual(await page.locator('.turn.assistant').count(), 1, 'Enter sends');
  });
}

async function totalsHavePlotsAndDays() {
  await withPage(async (page) => {
    await sendAndWait(page, 'one');
    await sendAndWait(page, 'two');
    await page.click('nav a[href="#totals"]');
    await page.waitForSelector('#ledger tbody tr');
    await page.waitForSelector('#plot-days canvas');
    for (const name of ['rate', 'bytes', 'answers', 'first', 'days', 'cost']) {
      checkEqual(await page.locator(`#plot-${name} canvas`).count(), 1, `plot ${name}`);
      check((await page.getAttribute(`#plot-${name}`, 'aria-label')).length > 10, 'its summary');
    }
    const cells = await page.locator('#ledger tbody tr').first().locator('td').allInnerTexts();
    checkEqual(cells, ['2026-11-30', 'ci', 'deepseek-v4.1-flash', '12', '60,000', '4,000', '2,500',
      '$0.0017'], 'the latest day');
    await page.locator('#totals').getByText('74.6 %').waitFor();
    const samples = () => page.evaluate(
      () => document.querySelector('#plot-rate').getAttribute('aria-label'));
    check((await samples()).startsWith('Tokens per second'), 'summary of the rates');
  });
}

async function eventsAreReadAtEverySplit() {
  await withPage(async (page) => {
    const different = await page.evaluate(async () => {
      const { readEvents } = await import('./sse.js');
      const text = ': comment\r\n\r\ndata: {"a":"é"}\n\ndata:two\ndata: lines\r\n\r\n' +
        'event: x\ndata: [DONE]\n\n';
      const bytes = new TextEncoder().encode(text);
      const expected = JSON.stringify(['{"a":"é"}', 'two\nlines', '[DONE]']);
      const wrong = [];
      for (let at = 0; at <= bytes.length; ++at) {
        const stream = new ReadableStream({
          start(controller) {
            controller.enqueue(bytes.slice(0, at));
            controller.enqueue(bytes.slice(at));
            controller.close();
          },
        });
        const events = [];
        for await (const event of readEvents(stream)) events.push(event);
        if (JSON.stringify(events) !== expected) wrong.push([at, events]);
      }
      return wrong;
    });
    checkEqual(different, [], 'splits that change what is read');
  });
}

const failed = await runCases({
  vendoredFilesAreThePublishedOnes, streamIsSeenWhileItGrows, thinkingIsFoldedApart,
  requestSaysWhatTheSwitchesSay, barsShowTheNumbers, priceIsShown, toolCallsAreShownAndAnswered,
  escapeStops, lastTurnIsEdited, faultsAreSaid, hostileMarkdownIsHarmless, sanitiserAloneHolds,
  themeFollowsTheSystemAndTheButton, phoneHasNoSidewaysScroll, keyIsAskedForAndKept,
  keyboardReachesEverything, totalsHavePlotsAndDays, eventsAreReadAtEverySplit,
});
await browser.close();
process.exitCode = failed === 0 ? 0 : 1;

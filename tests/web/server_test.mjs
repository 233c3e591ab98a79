// The web page as a running server sends it: MINKE_WEB_URL names the server, MINKE_WEB_KEY its key
// if it wants one. What the model writes is its own affair; what is said of it is not.
import {
  barShares, check, checkEqual, checkShares, launch, openPage, runCases, sendAndWait,
} from './support.mjs';

const url = process.env.MINKE_WEB_URL;
const key = process.env.MINKE_WEB_KEY ?? '';
const browser = await launch();
const kAnswer = '.turn.assistant:last-child';

async function stateOf() {
  const headers = key === '' ? {} : { authorization: `Bearer ${key}` };
  return (await fetch(new URL('api/state', url), { headers })).json();
}

async function chatShowsStreamCacheAndPrice() {
  const { page, close } = await openPage(browser, url);
  if (key !== '') {
    await page.fill('#key', key);
    await page.press('#key', 'Enter');
  }
  await page.waitForFunction(() => document.getElementById('server-line').textContent !== '');
  await page.click('.settings summary');
  await page.fill('#max-tokens', '48');
  await page.press('#max-tokens', 'Tab');
  await sendAndWait(page, 'Tell me about the sea. '.repeat(40));
  const fault = await page.locator(`${kAnswer} .fault`).innerText();
  check(fault === '' || fault.startsWith('Cut off'), `the answer failed: ${fault}`);
  // How often it is drawn depends on the machine; that it came in pieces does not.
  const turn = await page.evaluate(
    () => JSON.parse(sessionStorage.getItem('minke.conversations'))[0].turns[1]);
  check(turn.chunks > 1 && turn.elapsed > turn.firstSeconds,
    `the answer came at once: ${JSON.stringify(turn)}`);
  await page.uncheck('#thinking');
  await sendAndWait(page, 'Go on.');
  const session = await page.inputValue('#conversation');
  const answers = (await stateOf()).answers.filter((answer) => answer.conversation === session);
  checkEqual(answers.length, 2, 'answers of this conversation');
  const { detail } = answers[1];
  checkShares(await barShares(page.locator(`${kAnswer} .foot .bar`)), detail, 'the bar below');
  check(/^\D+0(\.\d+)?$/.test(await page.locator(`${kAnswer} .price`).innerText()), 'price');
  const row = page.locator('#conversations li[aria-current]');
  await row.getByText('2 answers').waitFor();
  checkShares(await barShares(row.locator('.bar')), detail, 'the bar beside');
  await page.click('nav a[href="#totals"]');
  await page.waitForSelector('#plot-rate canvas');
  await close();
}

async function pageSendsItsFiles() {
  for (const [path, type] of [['', 'text/html'], ['main.js', 'text/javascript'],
    ['style.css', 'text/css'], ['vendor/purify.js', 'text/javascript']]) {
    const response = await fetch(new URL(path, url));
    checkEqual(response.status, 200, `status of ${path || '/'}`);
    check(response.headers.get('content-type').startsWith(type), `type of ${path || '/'}`);
  }
}

const failed = await runCases({ pageSendsItsFiles, chatShowsStreamCacheAndPrice });
await browser.close();
process.exitCode = failed === 0 ? 0 : 1;

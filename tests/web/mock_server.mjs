// A server with the routes and answers that the page uses, and a script instead of a model.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { extname, join, normalize } from 'node:path';

const kTypes = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};
const kPolicy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

export const kHostile = [
  '<script>window.attacked = 1</script>',
  '<img src=x onerror="window.attacked = 2">',
  '[a link](javascript:window.attacked=3) and <a href="javascript:window.attacked=4">another</a>',
  '![picture](http://outside.invalid/picture.png)',
  '[data](data:text/html,<script>window.attacked=5</script>)',
  '<svg onload="window.attacked=6"><animate onbegin="window.attacked=7"></svg>',
  '<iframe srcdoc="<script>parent.attacked=8</script>"></iframe>',
  '<style>body { display: none }</style>',
  '<form action="http://outside.invalid/"><input name=key></form>',
  '<div class="notice" id="key-form">Your key, please</div>',
  '[reference]: javascript:window.attacked=9',
  'See [reference] and <javascript:window.attacked=10>.',
  '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 ' +
    'onerror=window.attacked=11&gt;">',
  '```html" onmouseover="window.attacked=12\ncode\n```',
  '[good](https://example.invalid/page)',
].join('\n\n');

// What the n-th answer of a conversation uses; the first is cold.
function detailOf(turn) {
  const used = turn === 0 ? [0, 0, 0, 240] : [768, 128, 16, 48 + turn];
  return {
    cached_ram_tokens: used[0], cached_disk_tokens: used[1], replayed_tokens: used[2],
    computed_tokens: used[3], cache_tier: turn === 0 ? 'none' : 'ram',
    miss_reason: turn === 0 ? 'cold' : 'none', first_difference: turn === 0 ? 0 : -1,
    cost: turn === 0 ? 0.000034 : 0.0000112, currency: 'USD', queue_seconds: 0.001,
    prefill_seconds: 0.2, decode_seconds: 2,
  };
}

function usageOf(detail) {
  const hit = detail.cached_ram_tokens + detail.cached_disk_tokens;
  const miss = detail.replayed_tokens + detail.computed_tokens;
  return {
    prompt_tokens: hit + miss, completion_tokens: 62, total_tokens: hit + miss + 62,
    prompt_tokens_details: { cached_tokens: hit },
    completion_tokens_details: { reasoning_tokens: 20 },
    prompt_cache_hit_tokens: hit, prompt_cache_miss_tokens: miss, minke: detail,
  };
}

export class MockServer {
  // key: '' lets everybody in.
  constructor(pageDir, key = '') {
    this.pageDir = pageDir;
    this.key = key;
    this.posts = [];  // {headers, body} of every chat request
    this.answers = [];  // of /api/state
    this.closedEarly = 0;
    this.gate = Promise.resolve();
    this.begun = Date.now();
    this.server = createServer((request, response) => {
      this.handle(request, response).catch((error) => response.destroy(error));
    });
  }

  async start() {
    await new Promise((done) => this.server.listen(0, '127.0.0.1', done));
    this.url = `http://127.0.0.1:${this.server.address().port}/`;
    return this;
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }

  // Answers wait in their middle until the function that comes back is called.
  hold() {
    let open = null;
    this.gate = new Promise((done) => {
      open = done;
    });
    return open;
  }

  json(response, status, body) {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  }

  refuse(response, status, message) {
    this.json(response, status, { error: { message, type: 'invalid_request_error' } });
  }

  async handle(request, response) {
    const { pathname } = new URL(request.url, this.url);
    const isApi = pathname.startsWith('/v1/') || pathname.startsWith('/api/');
    if (!isApi) return this.sendFile(pathname, response);
    if (this.key !== '' && request.headers.authorization !== `Bearer ${this.key}`) {
      return this.refuse(response, 401, 'The API key is missing or wrong.');
    }
    if (pathname === '/api/state') return this.json(response, 200, this.state());
    if (pathname === '/v1/usage') return this.json(response, 200, this.usage());
    if (pathname === '/v1/models') {
      return this.json(response, 200, { object: 'list',
        data: [{ id: 'deepseek-v4.1-flash' }, { id: 'deepseek-chat' }] });
    }
    if (pathname !== '/v1/chat/completions') return this.refuse(response, 404, 'Nothing here.');
    const parts = [];
    for await (const part of request) parts.push(part);
    const body = JSON.parse(Buffer.concat(parts).toString('utf8'));
    this.posts.push({ headers: request.headers, body });
    return this.chat(request, response, body);
  }

  async sendFile(pathname, response) {
    const path = normalize(pathname === '/' ? '/index.html' : pathname);
    const type = kTypes[extname(path)];
    try {
      const bytes = await readFile(join(this.pageDir, path));
      response.writeHead(200, { 'content-type': type, 'content-security-policy': kPolicy,
        'x-content-type-options': 'nosniff' });
      response.end(bytes);
    } catch {
      this.refuse(response, 404, 'Nothing here.');
    }
  }

  async chat(request, response, body) {
    const last = body.messages.at(-1);
    const text = last.content;
    if (text.includes('refuse me')) return this.refuse(response, 400, 'It is <b>too long</b>.');
    const turn = body.messages.filter((message) => message.role === 'assistant').length;
    const usage = usageOf(detailOf(turn));
    let finish = 'stop';
    let isOpen = true;
    response.on('close', () => {
      isOpen = false;
      if (!response.writableFinished) this.closedEarly += 1;
    });
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const send = (delta, reason = null, more = {}) => {
      const choice = { index: 0, delta, finish_reason: reason };
      response.write(`data: ${JSON.stringify({ choices: [choice], usage: null, ...more })}\n\n`);
    };
    const wait = (ms) => new Promise((done) => setTimeout(done, ms));
    const thinks = body.thinking?.type !== 'disabled';
    send({ role: 'assistant', content: thinks ? null : '', reasoning_content: '' });
    response.write(': keep-alive\n\n');
    if (thinks) {
      for (const word of ['Let me ', 'think of ', 'whales.']) send({ reasoning_content: word });
    }
    if (last.role === 'tool') send({ content: `The tool said: ${text}` });
    else if (text.includes('hostile')) send({ content: kHostile });
    else if (text.includes('weather')) {
      finish = 'tool_calls';
      send({ tool_calls: [{ index: 0, id: 'call_1', type: 'function',
        function: { name: 'get_weather', arguments: '' } }] });
      for (const piece of ['{"city":', '"Bergen"}']) {
        send({ tool_calls: [{ index: 0, function: { arguments: piece } }] });
      }
    } else if (text.includes('endless')) {
      while (isOpen) {
        send({ content: 'on and ' });
        await wait(20);
      }
      return;
    } else if (text.includes('fail later')) {
      send({ content: 'It begins' });
      response.end(`data: ${JSON.stringify({ error: { message: 'The engine stalled.' } })}\n\n`);
      return;
    } else {
      send({ content: 'A **minke** whale ' });
      await this.gate;
      send({ content: 'is the smallest\n\n- rorqual\n- of the north\n\n' });
      send({ content: '```python\nprint("hello")\n```\n' });
    }
    this.remember(request.headers['x-session-id'], usage, finish);
    send({ content: '' }, finish, { usage });
    response.end('data: [DONE]\n\n');
  }

  remember(conversation, usage, outcome) {
    this.answers.push({
      request_id: `request-${this.answers.length}`, conversation, key: '', outcome,
      prompt_tokens: usage.prompt_tokens, cached_tokens: usage.prompt_cache_hit_tokens,
      answer_tokens: usage.completion_tokens, reasoning_tokens: 20, detail: usage.minke,
      first_token_seconds: 0.21, seconds: 2.3,
    });
  }

  state() {
    const sum = (name) => this.answers.reduce((total, answer) => total + answer.detail[name], 0);
    const answered = this.answers.length;
    return {
      version: '0.1.0', model: 'deepseek-v4.1-flash', description: '10 layers, hidden size 128',
      random_weights: false, uptime_seconds: (Date.now() - this.begun) / 1000,
      context_tokens_max: 1048576, kv_bytes_per_token: 2048, currency: 'USD', queued: 0,
      prefilling: 0, decoding: 0, finished: answered,
      prompt_tokens: this.answers.reduce((total, answer) => total + answer.prompt_tokens, 0),
      cached_ram_tokens: sum('cached_ram_tokens'), cached_disk_tokens: sum('cached_disk_tokens'),
      replayed_tokens: sum('replayed_tokens'), computed_tokens: sum('computed_tokens'),
      answer_tokens: 62 * answered, cache_ram_bytes: 64 << 20,
      cache: {
        ram_used_bytes: (3 << 20) + answered * 500000, ram_blocks: 40, ram_snapshots: 3,
        snapshot_used_bytes: 1 << 20, blocks_evicted: 0, disk: true,
        disk_used_bytes: (5 << 20) + answered * 300000, disk_bytes_written: 9 << 20,
        disk_bytes_read: 1 << 20, disk_records_damaged: 0, disk_warning: '',
      },
      ledger_warning: '', answers: this.answers,
    };
  }

  usage() {
    const row = (day, hit, miss, output, cost) => ({
      day, key: 'ci', model: 'deepseek-v4.1-flash', requests: 12, prompt_cache_hit_tokens: hit,
      prompt_cache_miss_tokens: miss, completion_tokens: output, cost, currency: 'USD',
    });
    return { object: 'list', kept: true, data: [row('2026-11-27', 90000, 8000, 4000, 0.0021),
      row('2026-11-28', 240000, 21000, 9000, 0.0064), row('2026-11-29', 180000, 9000, 7000, 0.0049),
      row('2026-11-30', 60000, 4000, 2500, 0.0017)] };
  }
}

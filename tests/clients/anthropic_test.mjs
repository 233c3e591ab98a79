// The @anthropic-ai/sdk package against a scripted server: streams and not, tools, counting,
// errors, going away.
import { check, checkEqual, runCases } from '../support/cases.mjs';
import { kArguments, kCallAnswer, kSchema, kScripts, kThought } from './sdk_script.mjs';
import { errorOf, importClient, until, withServer } from './support.mjs';

const { default: Anthropic } = await importClient('@anthropic-ai/sdk');
const common = { model: 'deepseek-flash', max_tokens: 4096, thinking: { type: 'adaptive' } };
const tools = [{ name: 'weather', description: 'Tells the weather.', input_schema: kSchema }];
const user = (content) => [{ role: 'user', content }];

function withClient(steps, options = {}) {
  return withServer(kScripts, (server) => steps(
    new Anthropic({ baseURL: server.url, apiKey: server.key, maxRetries: 0 }), server), options);
}

const kindsOf = (message) => message.content.map((block) => block.type);

async function anthropicMessagesAnswerWholeAndStreamed() {
  await withClient(async (client) => {
    const request = { ...common, messages: user('Hi') };
    const whole = await client.messages.create(request);
    checkEqual(kindsOf(whole), ['thinking', 'text'], 'the blocks');
    checkEqual(whole.content[1].text, 'Hello there.', 'the text');
    checkEqual(whole.stop_reason, 'end_turn', 'stop_reason');
    const stream = client.messages.stream(request);
    let text = '';
    stream.on('text', (delta) => { text += delta; });
    const final = await stream.finalMessage();
    checkEqual(text, 'Hello there.', 'the streamed text');
    checkEqual(kindsOf(final), ['thinking', 'text'], 'the streamed blocks');
    checkEqual(final.usage.output_tokens, whole.usage.output_tokens, 'tokens');
    check(final.usage.cache_read_input_tokens > 0, `cached: ${JSON.stringify(final.usage)}`);
    const plain = await client.messages.create({ ...request, thinking: { type: 'disabled' } });
    checkEqual(kindsOf(plain), ['text'], 'the blocks without thinking');
  });
}

async function anthropicMessagesCallATool() {
  await withClient(async (client) => {
    const request = { ...common, tools, messages: user('What is the weather?') };
    const final = await client.messages.stream(request).finalMessage();
    const whole = await client.messages.create(request);
    for (const message of [final, whole]) {
      checkEqual(kindsOf(message), ['thinking', 'text', 'tool_use'], 'the blocks');
      checkEqual(message.stop_reason, 'tool_use', 'stop_reason');
      const [thinking, , call] = message.content;
      checkEqual(thinking.thinking, kThought, 'the thinking');
      checkEqual([call.name, call.input], ['weather', kArguments], 'the call');
    }
    request.messages.push({ role: 'assistant', content: whole.content }, {
      role: 'user',
      content: [{ type: 'tool_result', tool_use_id: whole.content[2].id, content: '-3' }],
    });
    const second = await client.messages.create(request);
    checkEqual(second.content.at(-1).text, kCallAnswer, 'the second turn');
    const { input_tokens: input, cache_read_input_tokens: cached } = second.usage;
    const first = whole.usage;
    check(cached >= first.input_tokens + first.cache_read_input_tokens + first.output_tokens - 1,
      `cached of the second turn: ${JSON.stringify(second.usage)}`);
    const counted = await client.messages.countTokens(
      { model: common.model, thinking: common.thinking, tools, messages: request.messages });
    checkEqual(counted.input_tokens, input + cached, 'tokens counted');
  });
}

async function anthropicErrorsAreItsOwn() {
  await withClient(async (client) => {
    const request = { ...common, max_tokens: 100, messages: user('Hi') };
    const ask = (fields) => errorOf(() => client.messages.create({ ...request, ...fields }));
    const few = await ask({ max_tokens: 0 });
    check(few instanceof Anthropic.BadRequestError, `out of range: ${few}`);
    checkEqual(few.error.error.type, 'invalid_request_error', 'its type');
    const unknown = await ask({ model: 'other-none' });
    check(unknown instanceof Anthropic.APIError && unknown.message.includes('other-none'),
      `an unknown model: ${unknown}`);
    for (const stream of [false, true]) {
      const long = await ask({ messages: user('word '.repeat(3000)), stream });
      check(long instanceof Anthropic.BadRequestError, `an overflow: ${long}`);
      check(/exceed context limit: \d+ \+ 100 > 1024/.test(long.message), `an overflow: ${long}`);
    }
    const lost = await errorOf(() => client.get('/v1/nowhere'));
    check(lost instanceof Anthropic.NotFoundError, `no such path: ${lost}`);
  }, { flags: ['--context', '1024'] });
}

async function anthropicNeedsItsKey() {
  await withClient(async (client, server) => {
    const request = { ...common, messages: user('Hi') };
    const asBearer = new Anthropic(
      { baseURL: server.url, apiKey: null, authToken: server.key, maxRetries: 0 });
    for (const known of [client, asBearer]) {
      checkEqual((await known.messages.create(request)).stop_reason, 'end_turn', 'with the key');
    }
    const stranger = new Anthropic(
      { baseURL: server.url, apiKey: 'sk-wrong-and-long', maxRetries: 0 });
    const refused = await errorOf(() => stranger.messages.create(request));
    check(refused instanceof Anthropic.AuthenticationError, `another key: ${refused}`);
    checkEqual(refused.error.error.type, 'authentication_error', 'its type');
  }, { key: 'sk-right-and-long' });
}

async function anthropicGoingAwayEndsTheWork() {
  await withClient(async (client, server) => {
    const stream = client.messages.stream({ ...common, messages: user('Tell a story.') });
    stream.on('text', () => stream.abort());
    const error = await errorOf(() => stream.done());
    check(error instanceof Anthropic.APIUserAbortError, `going away: ${error}`);
    // Else the first would be taken for the second, which would be given up before it is sent.
    checkEqual((await server.answers()).length, 1, 'answers');
    const gone = new AbortController();
    const whole = client.messages.create(
      { ...common, messages: user('Tell a story again.') }, { signal: gone.signal });
    const aborted = errorOf(() => whole);
    await until(async () => await server.running() > 0, 'the second request');
    gone.abort();
    check(await aborted instanceof Anthropic.APIUserAbortError, 'going away');
    const answers = await server.answers();
    checkEqual(answers.length, 2, 'answers');
    for (const { outcome } of answers) checkEqual(outcome, 'cancelled', 'the outcome');
  }, { flags: ['--step-delay-us', '20000'] });
}

process.exitCode = await runCases({
  anthropicMessagesAnswerWholeAndStreamed,
  anthropicMessagesCallATool,
  anthropicErrorsAreItsOwn,
  anthropicNeedsItsKey,
  anthropicGoingAwayEndsTheWork,
}) === 0 ? 0 : 1;

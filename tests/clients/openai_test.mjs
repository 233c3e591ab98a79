// The openai package against a scripted server: streams and not, tools, errors, going away.
import { check, checkEqual, runCases } from '../support/cases.mjs';
import { kArguments, kCallAnswer, kSchema, kScripts, kThought } from './sdk_script.mjs';
import { errorOf, importClient, until, withServer } from './support.mjs';

const { default: OpenAI } = await importClient('openai');
const model = 'deepseek-flash';
const tools = [{
  type: 'function',
  function: { name: 'weather', description: 'Tells the weather.', parameters: kSchema },
}];
const user = (content) => [{ role: 'user', content }];

function withClient(steps, options = {}) {
  return withServer(kScripts, (server) => {
    const { url, key } = server;
    return steps(new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 }), server);
  }, options);
}

async function openaiChatAnswersWholeAndStreamed() {
  await withClient(async (client) => {
    const whole = await client.chat.completions.create({ model, messages: user('Hi') });
    const [choice] = whole.choices;
    checkEqual(choice.message.content, 'Hello there.', 'content');
    checkEqual(choice.message.reasoning_content, 'Short.', 'reasoning');
    checkEqual(choice.finish_reason, 'stop', 'finish_reason');
    const stream = await client.chat.completions.create({
      model, messages: user('Hi'), stream: true, stream_options: { include_usage: true },
    });
    let [text, reasoning, reason, usage] = ['', '', null, null];
    for await (const chunk of stream) {
      const [part] = chunk.choices;
      text += part?.delta.content ?? '';
      reasoning += part?.delta.reasoning_content ?? '';
      reason = part?.finish_reason ?? reason;
      usage = chunk.usage ?? usage;
    }
    checkEqual([text, reasoning, reason], ['Hello there.', 'Short.', 'stop'], 'the stream');
    checkEqual(usage.total_tokens, whole.usage.total_tokens, 'tokens');
    const cached = usage.prompt_tokens_details.cached_tokens;
    checkEqual(cached, usage.prompt_cache_hit_tokens, 'cached tokens');
    check(cached > 0 && whole.usage.prompt_cache_hit_tokens === 0, `cached: ${cached}`);
    const names = [];
    for await (const entry of client.models.list()) names.push(entry.id);
    check(names.includes(model), `models: ${names}`);
  });
}

async function openaiChatCallsATool() {
  await withClient(async (client) => {
    const messages = user('What is the weather?');
    const runner = client.chat.completions.stream({ model, messages, tools });
    const final = await runner.finalChatCompletion();
    checkEqual(final.choices[0].finish_reason, 'tool_calls', 'finish_reason');
    const whole = await client.chat.completions.create({ model, messages, tools });
    for (const { message } of [...final.choices, ...whole.choices]) {
      checkEqual(message.content, 'One moment.', 'content');
      const [call] = message.tool_calls;
      checkEqual(call.function.name, 'weather', 'name');
      checkEqual(JSON.parse(call.function.arguments), kArguments, 'arguments');
    }
    const { message } = whole.choices[0];
    messages.push(message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: '-3' });
    const second = await client.chat.completions.create({ model, messages, tools });
    checkEqual(second.choices[0].message.content, kCallAnswer, 'the second turn');
    check(second.usage.prompt_cache_hit_tokens >= whole.usage.total_tokens - 1,
      `cached of the second turn: ${JSON.stringify(second.usage)}`);
    checkEqual(whole.choices[0].message.reasoning_content, kThought, 'reasoning');
  });
}

async function openaiChatKeepsToJsonMode() {
  await withClient(async (client) => {
    const { choices } = await client.chat.completions.create({
      model, messages: user('Say an object as json.'), response_format: { type: 'json_object' },
    });
    const object = JSON.parse(choices[0].message.content);
    checkEqual(object, { sea: 'blue', depth: [1, 2] }, 'the object');
  });
}

async function openaiResponsesAnswerWholeAndStreamed() {
  await withClient(async (client) => {
    const whole = await client.responses.create({ model, input: 'Hi' });
    checkEqual([whole.output_text, whole.status], ['Hello there.', 'completed'], 'the response');
    const [tool] = tools;
    const request = {
      model, input: user('What is the weather?'), tools: [{ type: 'function', ...tool.function }],
    };
    const runner = client.responses.stream(request);
    const kinds = [];
    for await (const event of runner) kinds.push(event.type);
    checkEqual([kinds[0], kinds.at(-1)], ['response.created', 'response.completed'], 'the events');
    const final = await runner.finalResponse();
    const call = final.output.find((item) => item.type === 'function_call');
    checkEqual([call.name, JSON.parse(call.arguments)], ['weather', kArguments], 'the call');
    const second = await client.responses.create({
      ...request,
      input: [...request.input, ...final.output,
        { type: 'function_call_output', call_id: call.call_id, output: '-3' }],
    });
    checkEqual(second.output_text, kCallAnswer, 'the second turn');
    check(second.usage.input_tokens_details.cached_tokens >= final.usage.total_tokens - 1,
      `cached of the second turn: ${JSON.stringify(second.usage)}`);
  });
}

async function openaiErrorsAreItsOwn() {
  await withClient(async (client) => {
    const ask = (fields) => () => client.chat.completions.create(
      { model, messages: user('Hi'), ...fields });
    const hot = await errorOf(ask({ temperature: 3 }));
    check(hot instanceof OpenAI.BadRequestError, `out of range: ${hot}`);
    check(hot.message.includes('temperature'), `out of range: ${hot}`);
    const wrong = await errorOf(ask({ temperature: 'warm' }));
    check(wrong instanceof OpenAI.UnprocessableEntityError, `a wrong type: ${wrong}`);
    const unknown = await errorOf(ask({ model: 'gpt-none' }));
    check(unknown instanceof OpenAI.BadRequestError, `an unknown model: ${unknown}`);
    check(unknown.message.includes('gpt-none'), `an unknown model: ${unknown}`);
    const long = await errorOf(ask({ messages: user('word '.repeat(3000)) }));
    check(long instanceof OpenAI.BadRequestError, `an overflow: ${long}`);
    check(/maximum context length/.test(long.message), `an overflow: ${long}`);
    const lost = await errorOf(() => client.get('/nowhere'));
    check(lost instanceof OpenAI.NotFoundError, `no such path: ${lost}`);
    // Codex learns of it from the stream.
    const stream = await client.responses.create(
      { model, input: 'word '.repeat(3000), stream: true });
    const inStream = await errorOf(async () => {
      for await (const event of stream) {
        check(/^response\.(created|in_progress)$/.test(event.type), `an event: ${event.type}`);
      }
    });
    check(inStream instanceof OpenAI.APIError, `an overflow of Responses: ${inStream}`);
    checkEqual(inStream.code, 'context_length_exceeded', 'an overflow of Responses');
  }, { flags: ['--context', '1024'] });
}

async function openaiNeedsItsKey() {
  await withClient(async (client, server) => {
    const { choices } = await client.chat.completions.create({ model, messages: user('Hi') });
    checkEqual(choices[0].message.content, 'Hello there.', 'with the key');
    const stranger = new OpenAI(
      { baseURL: `${server.url}/v1`, apiKey: 'sk-wrong-and-long', maxRetries: 0 });
    const refused = await errorOf(
      () => stranger.chat.completions.create({ model, messages: user('Hi') }));
    check(refused instanceof OpenAI.AuthenticationError, `another key: ${refused}`);
  }, { key: 'sk-right-and-long' });
}

async function openaiGoingAwayEndsTheWork() {
  await withClient(async (client, server) => {
    const abort = new AbortController();
    const stream = await client.chat.completions.create(
      { model, messages: user('Tell a story.'), stream: true }, { signal: abort.signal });
    let words = 0;
    for await (const chunk of stream) {
      words += chunk.choices[0]?.delta.content ? 1 : 0;
      if (words === 3) abort.abort();
    }
    // Else the first would be taken for the second, which would be given up before it is sent.
    checkEqual((await server.answers()).length, 1, 'answers');
    const gone = new AbortController();
    const whole = client.chat.completions.create(
      { model, messages: user('Tell a story again.') }, { signal: gone.signal });
    await until(async () => await server.running() > 0, 'the second request');
    gone.abort();
    const error = await errorOf(() => whole);
    check(error instanceof OpenAI.APIUserAbortError, `going away: ${error}`);
    const answers = await server.answers();
    checkEqual(answers.length, 2, 'answers');
    for (const { outcome } of answers) checkEqual(outcome, 'cancelled', 'the outcome');
  }, { flags: ['--step-delay-us', '20000'] });
}

process.exitCode = await runCases({
  openaiChatAnswersWholeAndStreamed,
  openaiChatCallsATool,
  openaiChatKeepsToJsonMode,
  openaiResponsesAnswerWholeAndStreamed,
  openaiErrorsAreItsOwn,
  openaiNeedsItsKey,
  openaiGoingAwayEndsTheWork,
}) === 0 ? 0 : 1;

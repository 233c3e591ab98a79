// The Vercel AI SDK with its DeepSeek provider against a scripted server: a streamed answer that
// calls a tool, the tool's result, and a second turn.
import { check, checkEqual, runCases } from '../support/cases.mjs';
import { kArguments, kCallAnswer, kSchema, kScripts, kThought } from './sdk_script.mjs';
import { checkTurns, importClient, withServer } from './support.mjs';

const { generateText, jsonSchema, stepCountIs, streamText, tool } = await importClient('ai');
const { createDeepSeek } = await importClient('@ai-sdk/deepseek');

async function aiSdkStreamsACallAndASecondTurn() {
  await withServer(kScripts, async (server) => {
    const deepseek = createDeepSeek({ baseURL: `${server.url}/v1`, apiKey: server.key });
    const asked = [];
    const weather = tool({
      description: 'Tells the weather.',
      inputSchema: jsonSchema(kSchema),
      execute: async (input) => {
        asked.push(input);
        return '-3';
      },
    });
    const messages = [{ role: 'user', content: 'What is the weather?' }];
    const result = streamText({
      model: deepseek('deepseek-flash'), messages, tools: { weather }, stopWhen: stepCountIs(3),
      onError: ({ error }) => { throw error; },
    });
    const kinds = new Set();
    let reasoning = '';
    for await (const part of result.fullStream) {
      kinds.add(part.type);
      if (part.type === 'error') throw part.error;
      if (part.type === 'reasoning-delta') reasoning += part.text;
    }
    for (const kind of ['tool-input-delta', 'tool-call', 'tool-result', 'text-delta', 'finish']) {
      check(kinds.has(kind), `no ${kind} among ${[...kinds]}`);
    }
    checkEqual(asked, [kArguments], 'the calls');
    checkEqual(await result.text, kCallAnswer, 'the text');
    check(reasoning.startsWith(kThought), `reasoning: ${reasoning}`);
    checkEqual(await result.finishReason, 'stop', 'finishReason');
    const answers = await result.responseMessages;
    const second = await generateText({
      model: deepseek('deepseek-flash'), tools: { weather },
      messages: [...messages, ...answers, { role: 'user', content: 'Thanks.' }],
    });
    checkEqual(second.text, 'Hello there.', 'the text of the second turn');
    check(second.usage.inputTokenDetails.cacheReadTokens > 0,
      `usage: ${JSON.stringify(second.usage)}`);
    await checkTurns(server, 3);
  });
}

process.exitCode = await runCases({ aiSdkStreamsACallAndASecondTurn }) === 0 ? 0 : 1;

// Agents that people write programs with, against a scripted server. Each is asked twice in one
// conversation, the second time by a process of its own that resumes it: the model first calls the
// agent's shell and reads what came of it, then answers. What the server says of the prompts is
// what counts: all but the new text has to come out of the cache. Each is set up with nothing but
// what minke serve prints for it, and what keeps it off the network.
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

import { check, checkEqual, runCases } from '../support/cases.mjs';
import { dsmlCalls, packageFile, runProgram, withServer } from './support.mjs';

const kCachedShareMin = 0.95;
const kNote = 'heron 4711';
const kCommand = 'cat note.txt';
const kFirst = 'Read the note in this folder.';
const kSecond = 'Now say goodbye.';
const kAnswers = ['A heron is in the note.', 'Goodbye, and mind the heron.'];

// What the model says to an agent whose shell is the tool `name`.
const scriptsFor = (name, values) => [
  { pattern: kSecond, answer: `They leave.</think>${kAnswers[1]}` },
  { pattern: kNote, answer: `That is it.</think>${kAnswers[0]}` },
  { pattern: '<tool_result>', answer: 'Strange.</think>The note could not be read.' },
  {
    pattern: kFirst,
    answer: `I need the shell.\nAt once.</think>I look.${dsmlCalls({ name, arguments: values })}`,
  },
  { pattern: '', answer: 'A title.</think>A note' },
];

// Requests of the conversation itself, not of its title: those have no tools, hence are short.
function turnsOf(answers) {
  const longest = Math.max(...answers.map((answer) => answer.prompt_tokens));
  return answers.filter((answer) => answer.prompt_tokens > longest / 2);
}

function checkCached(turns) {
  checkEqual(turns.map((turn) => turn.outcome), ['tool_calls', 'stop', 'stop'], 'the turns');
  for (const turn of turns.slice(1)) {
    const share = turn.cached_tokens / turn.prompt_tokens;
    check(share >= kCachedShareMin, `cached: ${share} of ${JSON.stringify(turn)}`);
  }
}

// tool: its shell as it declares it. client: its name, after which minke serve prints what to set.
// setUp(home, settings): sets it and answers the environment. command(prompt, again): its words;
// `again` resumes the conversation.
async function agentTakesTwoTurns({ client, tool, setUp, command }) {
  await withServer(scriptsFor(...tool), async (server, folder) => {
    const [home, work] = [join(folder, 'home'), join(folder, 'work')];
    await mkdir(home);
    await mkdir(work);
    await writeFile(join(work, 'note.txt'), `${kNote}\n`);
    const environment = { HOME: home, ...await setUp(home, await server.settings(client)) };
    for (const [i, prompt] of [kFirst, kSecond].entries()) {
      const { status, output } = await runProgram(command(prompt, i > 0), work, environment);
      check(status === 0 && output.includes(kAnswers[i]), `it ended with ${status}:\n${output}`);
    }
    checkCached(turnsOf(await server.answers()));
  });
}

// Settings that are a file: its path in the home directory, then its text.
async function writeSettings(home, settings) {
  const [, path, text] = /^~\/([^:,]+).*:\n([^]*)/.exec(settings);
  await mkdir(dirname(join(home, path)), { recursive: true });
  await writeFile(join(home, path), text);
}

// The script's command is the only one that runs, and not every machine has room for a sandbox.
async function codexTakesTwoTurns() {
  const target = 'x86_64-unknown-linux-musl';
  const program = packageFile(`@openai/codex/vendor/${target}/bin/codex`);
  const words = ['--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox',
    '-c', 'analytics.enabled=false', '-c', 'check_for_update_on_startup=false'];
  await agentTakesTwoTurns({
    client: 'Codex',
    tool: ['exec_command', { cmd: kCommand }],
    setUp: async (home, settings) => {
      await writeSettings(home, settings);
      return {};
    },
    command: (prompt, again) => [program, 'exec', ...(again ? ['resume', '--last'] : []), ...words,
      prompt],
  });
}

async function claudeCodeTakesTwoTurns() {
  const program = packageFile('@anthropic-ai/claude-code-linux-x64/claude');
  await agentTakesTwoTurns({
    client: 'Claude Code',
    tool: ['Bash', { command: kCommand, description: 'Reads the note' }],
    setUp: (home, settings) => ({
      ...Object.fromEntries(settings.trim().split(/\s+/).map((pair) => pair.split('='))),
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      DISABLE_AUTOUPDATER: '1',
    }),
    command: (prompt, again) => [program, '-p', ...(again ? ['--continue'] : []), prompt,
      '--allowedTools', 'Bash'],
  });
}

async function opencodeTakesTwoTurns() {
  const program = packageFile('opencode-linux-x64/bin/opencode');
  await agentTakesTwoTurns({
    client: 'opencode',
    tool: ['bash', { command: kCommand, description: 'Reads the note' }],
    setUp: async (home, settings) => {
      await writeSettings(home, settings);
      return {
        OPENCODE_DISABLE_AUTOUPDATE: '1',
        OPENCODE_DISABLE_SHARE: '1',
        OPENCODE_DISABLE_MODELS_FETCH: '1',
        OPENCODE_DISABLE_DEFAULT_PLUGINS: '1',
        OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER: '1',
      };
    },
    command: (prompt, again) => [program, 'run', ...(again ? ['--continue'] : []), prompt],
  });
}

async function piTakesTwoTurns() {
  const program = packageFile('@mariozechner/pi-coding-agent/dist/cli.js');
  await agentTakesTwoTurns({
    client: 'pi',
    tool: ['bash', { command: kCommand }],
    setUp: async (home, settings) => {
      await writeSettings(home, settings);
      return { PI_OFFLINE: '1' };
    },
    command: (prompt, again) => [process.execPath, program, '--provider', 'minke', '--model',
      'deepseek-flash', '--print', ...(again ? ['--continue'] : []), prompt],
  });
}

process.exitCode = await runCases({
  codexTakesTwoTurns,
  claudeCodeTakesTwoTurns,
  opencodeTakesTwoTurns,
  piTakesTwoTurns,
}) === 0 ? 0 : 1;

// What the tests with real clients share: a scripted server, what it says of its requests, and
// agents as processes with a home of their own.
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { check } from '../support/cases.mjs';

// What hangs on a machine that compiles something else, hangs longer.
const kWaitMs = 300_000;
const kPollMs = 50;

const modules = process.env.MINKE_CLIENT_MODULES;
const binary = process.env.MINKE_SCRIPTED_SERVER;
const model = process.env.MINKE_CLIENT_MODEL;
const require = createRequire(join(modules, 'package.json'));

// The path of a file of an installed package.
export const packageFile = (path) => join(modules, 'node_modules', path);

export const importClient = (name) => import(pathToFileURL(require.resolve(name)));

// Calls as the model writes them (serving.md 2.5), in JSON where a value is no text.
export function dsmlCalls(...calls) {
  const parameter = ([name, value]) => {
    const [kind, text] = typeof value === 'string' ? [true, value] : [false, JSON.stringify(value)];
    return `<｜DSML｜ parameter name="${name}" string="${kind}">${text}</｜DSML｜ parameter>`;
  };
  const invoke = ({ name, arguments: values }) => [`<｜DSML｜ invoke name="${name}">`,
    ...Object.entries(values).map(parameter), '</｜DSML｜ invoke>'].join('\n');
  return ['\n\n<｜DSML｜ calls>', ...calls.map(invoke), '</｜DSML｜ calls>'].join('\n');
}

// The error that a call throws.
export async function errorOf(call) {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error('no error came');
}

export const sleep = (milliseconds) => new Promise((wake) => setTimeout(wake, milliseconds));

// Waits until `find` answers something; an error names what was waited for.
export async function until(find, what) {
  for (const begun = Date.now(); Date.now() - begun < kWaitMs; await sleep(kPollMs)) {
    const found = await find();
    if (found) return found;
  }
  throw new Error(`waited in vain for ${what}`);
}

export async function withFolder(run) {
  const folder = await mkdtemp(join(tmpdir(), 'minke-client-'));
  try {
    return await run(folder);
  } finally {
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

export class ScriptedServer {
  // scripts: [{pattern, answer}]. flags: those of scripted_server, in addition.
  static async start(folder, scripts, flags = []) {
    const file = join(folder, 'script.json');
    await writeFile(file, JSON.stringify(scripts));
    const server = new ScriptedServer();
    server.log = '';
    server.key = 'any';
    server.process = spawn(binary, ['--model', model, '--script', file, ...flags]);
    server.said = '';
    server.process.stdout.on('data', (data) => { server.said += data; });
    server.process.stderr.on('data', (data) => { server.log += data; });
    server.ended = new Promise((done) => server.process.on('close', done));
    const url = await until(
      () => /^Serving at (\S+)\n/.exec(server.said)?.[1]
        ?? (server.process.exitCode !== null && 'none'),
      'the server');
    check(url !== 'none', `the server ended: ${server.log}`);
    server.url = url;
    return server;
  }

  async state() {
    const headers = { authorization: `Bearer ${this.key}` };
    return (await fetch(`${this.url}/api/state`, { headers })).json();
  }

  // What it prints for a client, as minke serve does, without the name.
  async settings(client) {
    await until(() => this.said.includes('\n  pi ') && this.said.endsWith('\n'), 'the settings');
    const section = new RegExp(`^  ${client} +(.*\\n(?:   +.*\\n)*)`, 'm').exec(this.said);
    check(section !== null, `nothing is printed for ${client}: ${this.said}`);
    return section[1];
  }

  async running() {
    const { queued, prefilling, decoding } = await this.state();
    return queued + prefilling + decoding;
  }

  // What the server says of its answers, the oldest first, once nothing runs.
  async answers() {
    await until(async () => await this.running() === 0, 'the end of all requests');
    return (await this.state()).answers;
  }

  async stop() {
    this.process.kill('SIGTERM');
    const status = await this.ended;
    check(status === 0, `the server ended with ${status}: ${this.log.slice(-4000)}`);
  }
}

// Runs `steps(server, folder)` on a server of its own, which has to end in order. `key`: it lets in
// who has it, and nobody else.
export function withServer(scripts, steps, { flags = [], key = '' } = {}) {
  return withFolder(async (folder) => {
    const keyFile = join(folder, 'keys');
    if (key !== '') await writeFile(keyFile, `tests ${key}\n`);
    const keyFlags = key === '' ? [] : ['--api-key-file', keyFile];
    const server = await ScriptedServer.start(folder, scripts, [...flags, ...keyFlags]);
    if (key !== '') server.key = key;
    try {
      await steps(server, folder);
      await server.stop();
    } catch (error) {
      error.stack += `\nThe server's log:\n${server.log.slice(-4000)}`;
      throw error;
    } finally {
      server.process.kill('SIGKILL');
    }
  });
}

// That a conversation of so many answers found all that was before in the cache. Its prompts are
// short for the SDKs, so that what counts is how much of the answer before was found.
export async function checkTurns(server, count) {
  const answers = await server.answers();
  check(answers.length === count, `answers: ${JSON.stringify(answers)}`);
  for (let i = 1; i < count; ++i) {
    const before = answers[i - 1];
    // The last token of an answer, its end, is drawn but not read.
    check(answers[i].cached_tokens >= before.prompt_tokens + before.answer_tokens - 1,
      `turn ${i} found ${answers[i].cached_tokens} tokens of ${JSON.stringify(before)}`);
  }
}

// Nothing listens there: what is not on this machine cannot be reached.
const kNoProxy = { HTTP_PROXY: 'http://127.0.0.1:9', HTTPS_PROXY: 'http://127.0.0.1:9',
  NO_PROXY: '127.0.0.1,localhost' };

// Runs a program in a folder, with nothing of this environment but the path: its status, and all
// that it said. It is killed, with what it started, when it takes too long.
export function runProgram([program, ...words], cwd, environment) {
  const env = { PATH: process.env.PATH, TERM: 'dumb', ...kNoProxy, ...environment };
  const child = spawn(program, words,
    { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (data) => { output += data; });
  }
  const end = () => {
    try {
      process.kill(-child.pid, 'SIGKILL');
    } catch {
      // It has ended, and so has all that it started.
    }
  };
  const timer = setTimeout(() => {
    output += `\nkilled after ${kWaitMs / 1000} s`;
    end();
  }, kWaitMs);
  return new Promise((done, fail) => {
    child.on('error', fail);
    child.on('exit', end);
    child.on('close', (status) => {
      clearTimeout(timer);
      done({ status, output });
    });
  });
}

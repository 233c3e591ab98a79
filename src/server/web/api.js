// What the page asks of the server. Paths are relative to the page, for servers behind a prefix.
import { readEvents } from './sse.js';

const kKeyName = 'minke.apiKey';

export class ApiError extends Error {
  constructor(message, status, retrySeconds) {
    super(message);
    this.status = status;
    this.retrySeconds = retrySeconds;
  }
}

// The key lives as long as the tab, and in no cookie.
export function apiKey() {
  return sessionStorage.getItem(kKeyName) ?? '';
}

export function setApiKey(key) {
  if (key === '') sessionStorage.removeItem(kKeyName);
  else sessionStorage.setItem(kKeyName, key);
}

function headers(more) {
  const key = apiKey();
  return key === '' ? more : { ...more, authorization: `Bearer ${key}` };
}

// The server says what is wrong in JSON; a proxy between may not.
async function errorOf(response) {
  const retrySeconds = Number(response.headers.get('retry-after')) || 0;
  let message = '';
  try {
    message = (await response.json()).error?.message ?? '';
  } catch {
    // The status is all there is.
  }
  if (message === '') message = `The server answered with status ${response.status}.`;
  return new ApiError(message, response.status, retrySeconds);
}

async function ask(path, options) {
  const request = { ...options, cache: 'no-store', credentials: 'omit', redirect: 'error' };
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), request);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('The server does not answer.', 0, 0);
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export async function getJson(path) {
  const response = await ask(path, { headers: headers({}) });
  return response.json();
}

// Yields the chunks of a streamed answer. Throws an ApiError, or an AbortError after signal.
export async function* streamChat(body, sessionId, signal) {
  const response = await ask('v1/chat/completions', {
    method: 'POST',
    headers: headers({ 'content-type': 'application/json', 'x-session-id': sessionId }),
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  let ended = false;
  for await (const data of readEvents(response.body)) {
    if (data === '[DONE]') {
      ended = true;
      break;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message ?? 'The answer failed.', 200, 0);
    yield chunk;
  }
  if (!ended) throw new ApiError('The connection closed before the answer was complete.', 0, 0);
}

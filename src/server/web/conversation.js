// Conversations of this tab: their turns, the messages they make, and how they outlive a reload.

const kStoreName = 'minke.conversations';
const kConversationsMax = 20;
const kTitleCharactersMax = 48;

function newId() {
  // randomUUID() is missing where the page came over plain HTTP from another machine.
  const random = crypto.getRandomValues(new Uint8Array(12));
  return `web-${Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

export function newAssistantTurn() {
  return {
    role: 'assistant', reasoning: '', text: '', calls: [], finish: '', usage: null, fault: '',
    stopped: false, chunks: 0, firstSeconds: 0, thoughtSeconds: 0,
  };
}

// Adds a chunk of a stream to the turn. `elapsed`: seconds since the request went out.
export function applyChunk(turn, chunk, elapsed) {
  const choice = chunk.choices?.[0];
  const delta = choice?.delta ?? {};
  const wrote = delta.reasoning_content || delta.content || delta.tool_calls;
  if (wrote) {
    if (turn.chunks === 0) turn.firstSeconds = elapsed;
    turn.chunks += 1;
  }
  if (delta.reasoning_content) {
    turn.reasoning += delta.reasoning_content;
    turn.thoughtSeconds = elapsed;
  }
  if (delta.content) turn.text += delta.content;
  for (const piece of delta.tool_calls ?? []) {
    let call = turn.calls.find((known) => known.index === piece.index);
    if (!call) {
      call = { index: piece.index, id: '', name: '', arguments: '', result: '' };
      turn.calls.push(call);
    }
    if (piece.id) call.id = piece.id;
    if (piece.function?.name) call.name = piece.function.name;
    if (piece.function?.arguments) call.arguments += piece.function.arguments;
  }
  if (choice?.finish_reason) turn.finish = choice.finish_reason;
  if (chunk.usage) turn.usage = chunk.usage;
}

// What was cut off in a call is not a call: its arguments are no JSON.
export function dropUnfinishedCalls(turn) {
  if (turn.finish !== 'tool_calls') turn.calls = [];
}

function pushAssistant(messages, turn) {
  if (turn.text === '' && turn.calls.length === 0) return;
  const message = { role: 'assistant', content: turn.text };
  if (turn.reasoning !== '') message.reasoning_content = turn.reasoning;
  if (turn.calls.length > 0) {
    message.tool_calls = turn.calls.map((call) => ({
      id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments },
    }));
  }
  messages.push(message);
  for (const call of turn.calls) {
    messages.push({ role: 'tool', tool_call_id: call.id, content: call.result });
  }
}

export class Conversation {
  constructor(id = newId(), turns = []) {
    this.id = id;
    this.turns = turns;
  }

  title() {
    const first = this.turns.find((turn) => turn.role === 'user');
    if (!first) return 'New conversation';
    const line = first.text.trim().split('\n', 1)[0];
    return line.length > kTitleCharactersMax ? `${line.slice(0, kTitleCharactersMax)}…` : line;
  }

  messages(system) {
    const messages = [];
    if (system.trim() !== '') messages.push({ role: 'system', content: system });
    for (const turn of this.turns) {
      if (turn.role === 'user') messages.push({ role: 'user', content: turn.text });
      else pushAssistant(messages, turn);
    }
    return messages;
  }

  lastUserIndex() {
    return this.turns.findLastIndex((turn) => turn.role === 'user');
  }
}

// Latest first. What cannot be read is left behind.
export function loadConversations() {
  try {
    const stored = JSON.parse(sessionStorage.getItem(kStoreName) ?? '[]');
    return stored.map(({ id, turns }) => new Conversation(id, turns));
  } catch {
    return [];
  }
}

// The tab's storage is small: the oldest conversations give way.
export function saveConversations(conversations) {
  const kept = conversations.filter((one) => one.turns.length > 0).slice(0, kConversationsMax);
  while (kept.length > 0) {
    try {
      sessionStorage.setItem(kStoreName, JSON.stringify(kept));
      return;
    } catch {
      kept.pop();
    }
  }
  sessionStorage.removeItem(kStoreName);
}

// The chat: what is sent, what comes back, and the keys.
import { streamChat } from './api.js';
import {
  Conversation, applyChunk, dropUnfinishedCalls, loadConversations, newAssistantTurn,
  saveConversations,
} from './conversation.js';
import { byId, element, setText } from './dom.js';
import { count } from './format.js';
import { AssistantView, UserView } from './turn_view.js';

const kSettingsName = 'minke.settings';
const kSettingFields = ['thinking', 'effort', 'model', 'system', 'max-tokens', 'temperature',
  'tools'];
const kNearEndPixels = 80;

export class Chat {
  // on.unauthorized(): a key is wanted. on.changed(): the cache view should look again.
  constructor(on) {
    this.on = on;
    this.views = new WeakMap();
    this.abort = null;
    this.conversations = loadConversations();
    if (this.conversations.length === 0) this.conversations.push(new Conversation());
    this.current = this.conversations[0];
    this.transcript = byId('transcript');
    this.message = byId('message');
    this.loadSettings();
    this.listen();
    this.show();
  }

  listen() {
    byId('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      this.send();
    });
    byId('stop').addEventListener('click', () => this.stop());
    byId('new').addEventListener('click', () => this.startNew());
    byId('conversation').addEventListener('change', (event) => {
      this.current = this.conversations.find((one) => one.id === event.target.value);
      this.show();
    });
    this.message.addEventListener('keydown', (event) => this.onMessageKey(event));
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.abort) this.stop();
    });
    for (const name of kSettingFields) {
      byId(name).addEventListener('change', () => this.saveSettings());
    }
  }

  onMessageKey(event) {
    if (event.isComposing) return;
    if (event.key === 'Enter' && !event.shiftKey) {
      // On a phone the key is the only way to make a line.
      if (matchMedia('(pointer: coarse)').matches) return;
      event.preventDefault();
      this.send();
    } else if (event.key === 'ArrowUp' && this.message.value === '' && !this.abort) {
      event.preventDefault();
      this.editLast();
    }
  }

  loadSettings() {
    let stored = {};
    try {
      stored = JSON.parse(sessionStorage.getItem(kSettingsName) ?? '{}');
    } catch {
      // The defaults of the page hold.
    }
    for (const name of kSettingFields) {
      const field = byId(name);
      if (stored[name] === undefined || name === 'model') continue;
      if (field.type === 'checkbox') field.checked = stored[name];
      else field.value = stored[name];
    }
    this.wantedModel = stored.model;
    this.saveSettings();
  }

  saveSettings() {
    const stored = {};
    for (const name of kSettingFields) {
      const field = byId(name);
      stored[name] = field.type === 'checkbox' ? field.checked : field.value;
    }
    if (stored.model === '') stored.model = this.wantedModel;
    sessionStorage.setItem(kSettingsName, JSON.stringify(stored));
    byId('effort').disabled = !byId('thinking').checked;
    byId('temperature').disabled = byId('thinking').checked;
  }

  // names: of GET /v1/models, the server's default first.
  setModels(names) {
    const select = byId('model');
    select.replaceChildren(...names.map((name) => element('option', { value: name }, name)));
    if (names.includes(this.wantedModel)) select.value = this.wantedModel;
    byId('model-label').hidden = names.length < 2;
  }

  startNew() {
    if (this.abort) return;
    this.conversations = this.conversations.filter((one) => one.turns.length > 0);
    this.current = new Conversation();
    this.conversations.unshift(this.current);
    this.show();
    this.message.focus();
  }

  // Draws the current conversation from its turns.
  show() {
    const { turns } = this.current;
    this.transcript.replaceChildren(...turns.map((turn) => this.viewOf(turn).root));
    if (turns.length === 0) {
      this.transcript.append(element('p', { class: 'empty' },
        'Write to the model. Beside the chat you see what the cache did for it.'));
    }
    this.showControls();
    this.transcript.scrollTop = this.transcript.scrollHeight;
    this.on.changed();
  }

  showControls() {
    const { turns } = this.current;
    const running = this.abort !== null;
    const lastUser = this.current.lastUserIndex();
    turns.forEach((turn, i) => {
      const isLast = turn.role === 'user' ? i === lastUser : i === turns.length - 1;
      this.viewOf(turn).setLast(isLast && !running);
    });
    byId('stop').hidden = !running;
    byId('send').hidden = running;
    byId('new').disabled = running;
    const select = byId('conversation');
    select.disabled = running;
    select.replaceChildren(...this.conversations.map(
      (one) => element('option', { value: one.id }, one.title())));
    select.value = this.current.id;
  }

  viewOf(turn) {
    let view = this.views.get(turn);
    if (!view) {
      view = turn.role === 'user' ? new UserView(turn, { edit: () => this.editLast() })
        : new AssistantView(turn, { again: () => this.again(), results: () => this.answer() });
      this.views.set(turn, view);
    }
    return view;
  }

  titleOf(id) {
    return this.conversations.find((one) => one.id === id)?.title();
  }

  editLast() {
    const at = this.current.lastUserIndex();
    if (this.abort || at < 0) return;
    this.message.value = this.current.turns[at].text;
    this.current.turns.length = at;
    saveConversations(this.conversations);
    this.show();
    this.message.focus();
  }

  again() {
    if (this.abort || this.current.turns.at(-1)?.role !== 'assistant') return;
    this.current.turns.pop();
    this.answer();
  }

  stop() {
    this.abort?.abort();
  }

  send() {
    const text = this.message.value;
    if (this.abort || text.trim() === '') return;
    this.current.turns.push({ role: 'user', text });
    this.message.value = '';
    this.answer();
  }

  // The request; throws a sentence where the settings make none.
  body() {
    const thinking = byId('thinking').checked;
    const body = {
      model: byId('model').value || this.wantedModel || 'deepseek-chat',
      messages: this.current.messages(byId('system').value),
      thinking: { type: thinking ? 'enabled' : 'disabled' },
    };
    if (thinking && byId('effort').value !== '') {
      body.reasoning_effort = Number(byId('effort').value);
    }
    if (byId('max-tokens').value !== '') body.max_tokens = Number(byId('max-tokens').value);
    if (!thinking && byId('temperature').value !== '') {
      body.temperature = Number(byId('temperature').value);
    }
    if (byId('tools').value.trim() !== '') {
      let tools = null;
      try {
        tools = JSON.parse(byId('tools').value);
      } catch (error) {
        throw new Error(`The tools in the settings are no JSON: ${error.message}`);
      }
      if (!Array.isArray(tools)) throw new Error('The tools in the settings are no JSON list.');
      if (tools.length > 0) body.tools = tools;
    }
    return body;
  }

  async answer() {
    const { current } = this;
    const turn = newAssistantTurn();
    this.abort = new AbortController();
    let request = null;
    try {
      request = this.body();
    } catch (error) {
      turn.fault = error.message;
    }
    current.turns.push(turn);
    const view = this.viewOf(turn);
    this.show();
    view.setRunning(true);
    setText(byId('status'), 'The model answers.');
    if (request) await this.stream(turn, view, request);
    this.abort = null;
    dropUnfinishedCalls(turn);
    view.setRunning(false);
    this.follow(() => this.showControls());
    setText(byId('status'), turn.fault || (turn.stopped ? 'Stopped.'
      : `The answer is complete: ${count(turn.usage?.completion_tokens)} tokens.`));
    saveConversations(this.conversations);
    this.on.changed();
  }

  async stream(turn, view, request) {
    const begun = performance.now();
    try {
      for await (const chunk of streamChat(request, this.current.id, this.abort.signal)) {
        turn.elapsed = (performance.now() - begun) / 1000;
        applyChunk(turn, chunk, turn.elapsed);
        this.follow(() => view.touch(() => this.scrollIfWanted()));
      }
    } catch (error) {
      if (error.name === 'AbortError') turn.stopped = true;
      else turn.fault = error.message;
      if (error.status === 401) this.on.unauthorized();
      if (error.retrySeconds > 0) turn.fault += ` Try again in ${error.retrySeconds} s.`;
    }
  }

  // The end stays in sight for a reader who is there, and nobody else is moved.
  follow(change) {
    const { scrollTop, scrollHeight, clientHeight } = this.transcript;
    this.atEnd = scrollHeight - scrollTop - clientHeight < kNearEndPixels;
    change();
    this.scrollIfWanted();
  }

  scrollIfWanted() {
    if (this.atEnd) this.transcript.scrollTop = this.transcript.scrollHeight;
  }
}

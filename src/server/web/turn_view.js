// One turn as elements. An answer is drawn again while it grows, no more often than is cheap.
import { element, setText } from './dom.js';
import { count, price, rate, seconds } from './format.js';
import { renderMarkdown } from './markdown.js';
import { fillBar, newBar, reasonLine, tokensLine } from './usage_bar.js';

const kRedrawMsMin = 60;
const kRedrawShare = 5;  // at most a fifth of the time goes into drawing

export class UserView {
  // on.edit(): the reader wants to write this turn anew.
  constructor(turn, on) {
    this.editButton = element('button',
      { type: 'button', class: 'small edit', onclick: () => on.edit() }, 'Edit');
    this.root = element('div', { class: 'turn user' },
      element('div', { class: 'who' }, 'You', element('span', { class: 'grow' }), this.editButton),
      turn.text);
  }

  setLast(isLast) {
    this.editButton.hidden = !isLast;
  }
}

export class AssistantView {
  // on.again(): answer anew. on.results(): the results of the calls are written.
  constructor(turn, on) {
    this.turn = turn;
    this.on = on;
    this.running = false;
    this.timer = 0;
    this.drawMs = 0;
    this.drawnText = '';
    this.calls = new Map();
    this.againButton = element('button',
      { type: 'button', class: 'small again', onclick: () => on.again() }, 'Try again');
    this.summary = element('summary', {}, 'Thinking');
    this.reasoning = element('pre', { tabindex: 0, 'aria-label': 'Thinking' });
    this.thinking = element('details', { class: 'thinking', hidden: true }, this.summary,
      this.reasoning);
    this.answer = element('div', { class: 'answer' });
    this.callList = element('div', { class: 'calls' });
    this.resultsButton = element('button', {
      type: 'button', class: 'strong results', hidden: true, onclick: () => on.results(),
    }, 'Send results');
    this.fault = element('p', { class: 'fault', role: 'alert', hidden: true });
    this.bar = newBar();
    this.numbers = element('div', { class: 'numbers' });
    this.foot = element('div', { class: 'foot', hidden: true }, this.bar, this.numbers);
    this.root = element('div', { class: 'turn assistant' },
      element('div', { class: 'who' }, 'Model', element('span', { class: 'grow' }),
        this.againButton),
      this.thinking, this.answer, this.callList, this.resultsButton, this.fault, this.foot);
    this.draw();
  }

  setLast(isLast) {
    this.againButton.hidden = !isLast || this.running;
    const open = isLast && !this.running && this.turn.finish === 'tool_calls';
    this.resultsButton.hidden = !open;
    for (const call of this.calls.values()) call.field.hidden = !open && call.input.value === '';
    for (const call of this.calls.values()) call.input.disabled = !open;
  }

  setRunning(running) {
    this.running = running;
    this.root.setAttribute('aria-busy', String(running));
    clearTimeout(this.timer);
    this.timer = 0;
    this.draw();
  }

  // Something was added; it is drawn soon.
  touch(after) {
    if (this.timer !== 0) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      const begun = performance.now();
      this.draw();
      this.drawMs = performance.now() - begun;
      after();
    }, Math.max(kRedrawMsMin, this.drawMs * kRedrawShare));
  }

  draw() {
    const { turn } = this;
    this.drawThinking();
    if (turn.text !== this.drawnText) {
      this.drawnText = turn.text;
      this.answer.replaceChildren(renderMarkdown(turn.text));
    }
    this.drawCalls();
    this.fault.hidden = turn.fault === '' && !turn.stopped && turn.finish !== 'length';
    if (turn.fault !== '') setText(this.fault, turn.fault);
    else if (turn.stopped) setText(this.fault, 'Stopped.');
    else if (turn.finish === 'length') setText(this.fault, 'Cut off: no more tokens were allowed.');
    this.drawFoot();
  }

  drawThinking() {
    const { turn } = this;
    this.thinking.hidden = turn.reasoning === '';
    if (turn.reasoning === '') return;
    const thinks = this.running && turn.text === '' && turn.calls.length === 0;
    setText(this.summary, thinks ? `Thinking… ${count(turn.reasoning.length)} characters`
      : `Thought for ${seconds(turn.thoughtSeconds)}`);
    // Only what is new is added, so that a long thought stays cheap.
    const shown = this.reasoning.firstChild?.data.length ?? 0;
    if (shown === 0) this.reasoning.textContent = turn.reasoning;
    else if (turn.reasoning.length > shown) {
      this.reasoning.firstChild.appendData(turn.reasoning.slice(shown));
    }
  }

  drawCalls() {
    const { calls } = this.turn;
    for (const [index, view] of this.calls) {
      if (calls.some((call) => call.index === index)) continue;
      view.root.remove();
      this.calls.delete(index);
    }
    for (const call of calls) {
      let view = this.calls.get(call.index);
      if (!view) {
        view = this.newCall(call);
        this.calls.set(call.index, view);
        this.callList.append(view.root);
      }
      setText(view.name, call.name);
      setText(view.arguments, prettyJson(call.arguments));
    }
  }

  newCall(call) {
    const name = element('span', { class: 'name' });
    const args = element('pre', { tabindex: 0, 'aria-label': 'Arguments' });
    const input = element('textarea', { rows: 2, class: 'code result' });
    input.value = call.result;
    input.addEventListener('input', () => {
      call.result = input.value;
    });
    const field = element('label', {}, 'Result', input);
    const root = element('div', { class: 'call' }, element('div', {}, 'Tool call ', name), args,
      field);
    return { root, name, arguments: args, input, field };
  }

  drawFoot() {
    const { turn } = this;
    const detail = turn.usage?.minke;
    this.foot.hidden = !turn.usage && !(this.running && turn.chunks > 1);
    this.bar.hidden = !detail;
    if (!turn.usage) {
      // One chunk is about one token.
      const passed = (turn.elapsed ?? 0) - turn.firstSeconds;
      setText(this.numbers, `about ${rate(turn.chunks - 1, passed) || '…'}`);
      return;
    }
    const spans = [];
    const add = (name, text) => {
      if (text) spans.push(element('span', { class: name }, text));
    };
    if (detail) {
      fillBar(this.bar, detail);
      add('prompt', tokensLine(detail));
    }
    add('written', `${count(turn.usage.completion_tokens)} written`);
    add('rate', rate(turn.usage.completion_tokens, detail?.decode_seconds));
    if (turn.firstSeconds > 0) add('first', `first token after ${seconds(turn.firstSeconds)}`);
    if (detail) add('price', price(detail.cost, detail.currency));
    if (detail && detail.miss_reason !== 'none') add('reason', reasonLine(detail));
    this.numbers.replaceChildren(...spans);
  }
}

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;  // still growing
  }
}

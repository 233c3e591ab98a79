// The live state of the cache: how full it is, and what it does for each conversation.
import { byId, element, setText } from './dom.js';
import { bytes, count, price, rate } from './format.js';
import { fillBar, newBar, reasonLine, tokensLine } from './usage_bar.js';

const kConversationsShownMax = 50;

// Answers by conversation, the latest conversation first.
export function groupAnswers(answers) {
  const groups = new Map();
  for (const answer of answers) {
    const name = answer.conversation;
    const group = groups.get(name) ?? { name, turns: 0, cost: 0, last: null };
    groups.delete(name);
    group.turns += 1;
    group.cost += answer.detail.cost;
    group.last = answer;
    groups.set(name, group);
  }
  return [...groups.values()].reverse();
}

export class CacheView {
  constructor() {
    this.meters = new Map();
    this.rows = new Map();
  }

  // titleOf(id): the title of a conversation of this tab. current: the id of the one shown.
  show(state, titleOf, current) {
    this.showMeters(state);
    const groups = groupAnswers(state.answers).slice(0, kConversationsShownMax);
    // The one beside the list comes first, whoever else is busy.
    groups.sort((a, b) => Number(b.name === current) - Number(a.name === current));
    const list = byId('conversations');
    const shown = new Set(groups.map((group) => group.name));
    for (const [name, row] of this.rows) {
      if (shown.has(name)) continue;
      row.root.remove();
      this.rows.delete(name);
    }
    groups.forEach((group, i) => {
      const row = this.rowOf(group.name);
      fillRow(row, group, state, titleOf(group.name), group.name === current);
      if (list.children[i] !== row.root) list.insertBefore(row.root, list.children[i] ?? null);
    });
    byId('no-conversations').hidden = groups.length > 0;
  }

  showMeters(state) {
    const { cache } = state;
    this.meter('Memory', `${bytes(cache.ram_used_bytes)} of ${bytes(state.cache_ram_bytes)}`,
      cache.ram_used_bytes, state.cache_ram_bytes);
    this.meter('Snapshots',
      `${bytes(cache.snapshot_used_bytes)}, ${count(cache.ram_snapshots)} of them`);
    this.meter('Disk', cache.disk ? bytes(cache.disk_used_bytes) : 'not in use');
    this.meter('Running', `${count(state.decoding)} writing, ${count(state.prefilling)} reading, ` +
      `${count(state.queued)} waiting`);
    if (cache.disk_warning) this.meter('Warning', cache.disk_warning);
  }

  meter(label, text, value, limit) {
    let row = this.meters.get(label);
    if (!row) {
      row = { value: element('dd'), meter: null };
      const root = element('div', {}, element('dt', {}, label), row.value);
      if (limit > 0) {
        row.meter = element('meter', { min: 0, max: limit, 'aria-label': label });
        root.append(element('dd', {}, row.meter));
        root.lastChild.className = 'meter-row';
      }
      this.meters.set(label, row);
      byId('meters').append(root);
    }
    setText(row.value, text);
    if (row.meter) row.meter.value = value;
  }

  rowOf(name) {
    let row = this.rows.get(name);
    if (row) return row;
    row = { title: element('span'), price: element('span', { class: 'price' }), bar: newBar() };
    row.lines = ['tokens', 'size', 'speed', 'reason'].map(
      (line) => element('p', { class: `line ${line}` }));
    row.root = element('li', {}, element('p', { class: 'title' }, row.title, row.price), row.bar,
      ...row.lines);
    row.root.dataset.conversation = name;
    this.rows.set(name, row);
    return row;
  }
}

function fillRow(row, group, state, title, isCurrent) {
  const { last } = group;
  const { detail } = last;
  setText(row.title, title ?? (group.name || 'Requests without a session'));
  setText(row.price, price(group.cost, detail.currency));
  if (isCurrent) row.root.setAttribute('aria-current', 'true');
  else row.root.removeAttribute('aria-current');
  fillBar(row.bar, detail);
  const size = (tokens) => bytes(tokens * state.kv_bytes_per_token);
  const turns = group.turns === 1 ? '1 answer' : `${count(group.turns)} answers`;
  const speed = rate(last.answer_tokens, detail.decode_seconds);
  const texts = [
    tokensLine(detail),
    `${size(last.prompt_tokens + last.answer_tokens)} of context, ` +
      `${size(detail.cached_ram_tokens)} came from memory, ` +
      `${size(detail.cached_disk_tokens)} from disk`,
    [turns, speed, last.outcome === 'cancelled' ? 'stopped' : ''].filter(Boolean).join(', '),
    detail.miss_reason === 'none' ? '' : `Why not more: ${reasonLine(detail)}`,
  ];
  row.lines.forEach((line, i) => setText(line, texts[i]));
}

// Totals since the server's start, plots over time, and the ledger by day.
import { getJson } from './api.js';
import { byId, element, setText } from './dom.js';
import { bytes, count, price, seconds } from './format.js';
import { Plot } from './plots.js';

const kLedgerMs = 30_000;
const kLedgerRowsShownMax = 400;

// Rows of the ledger summed by day, ascending.
export function sumByDay(rows) {
  const days = new Map();
  for (const row of rows) {
    const sum = days.get(row.day) ?? { hit: 0, miss: 0, output: 0, cost: 0, currencies: new Set() };
    sum.hit += row.prompt_cache_hit_tokens;
    sum.miss += row.prompt_cache_miss_tokens;
    sum.output += row.completion_tokens;
    sum.cost += row.cost;
    sum.currencies.add(row.currency);
    days.set(row.day, sum);
  }
  return [...days.entries()].sort(([a], [b]) => (a < b ? -1 : 1));
}

export class TotalsView {
  constructor() {
    this.tiles = new Map();
    this.currency = 'USD';
    this.ledgerAt = 0;
    this.days = [];
    const tokens = (label, colour, bars = false) => ({ label, colour, bars, value: count });
    const money = (value) => price(value, this.currency);
    this.plots = {
      rate: new Plot(byId('plot-rate'), 'time', [tokens('cached', 'ram'),
        tokens('computed', 'computed'), tokens('written', 'replayed')]),
      bytes: new Plot(byId('plot-bytes'), 'time', [tokens('memory', 'ram'),
        tokens('disk', 'disk')]),
      // The lower ones are drawn over the higher: memory up to its end, and so on.
      answers: new Plot(byId('plot-answers'), 'number', [tokens('prompt', 'computed', true),
        tokens('known', 'replayed', true), tokens('cached', 'ram', true)]),
      first: new Plot(byId('plot-first'), 'number', [{
        label: 'first token', colour: 'ram', value: (value) => seconds(value) }]),
      days: new Plot(byId('plot-days'), 'day', [tokens('hit', 'ram'), tokens('miss', 'computed'),
        tokens('output', 'replayed')]),
      cost: new Plot(byId('plot-cost'), 'day', [{
        label: 'price', colour: 'ram', bars: true, value: money }]),
    };
  }

  show(state, history) {
    this.currency = state.currency;
    const cached = state.cached_ram_tokens + state.cached_disk_tokens;
    const share = state.prompt_tokens > 0 ? (100 * cached) / state.prompt_tokens : 0;
    this.tile('Up for', seconds(state.uptime_seconds));
    this.tile('Answers', count(state.finished));
    this.tile('Running', count(state.decoding + state.prefilling));
    this.tile('Waiting', count(state.queued));
    this.tile('Prompt tokens', count(state.prompt_tokens));
    this.tile('Cached', `${share.toFixed(1)} %`);
    this.tile('Computed', count(state.computed_tokens));
    this.tile('Replayed', count(state.replayed_tokens));
    this.tile('Written', count(state.answer_tokens));
    this.tile('Context', `${count(state.context_tokens_max)} tokens`);
    this.tile('A token takes', bytes(state.kv_bytes_per_token));
    this.showPlots(state, history);
    if (Date.now() - this.ledgerAt > kLedgerMs) this.loadLedger();
  }

  tile(label, text) {
    let value = this.tiles.get(label);
    if (!value) {
      value = element('dd');
      this.tiles.set(label, value);
      byId('totals').append(element('div', {}, element('dt', {}, label), value));
    }
    setText(value, text);
  }

  showPlots(state, history) {
    const { time } = history;
    this.plots.rate.show([time, history.cached, history.computed, history.written],
      `Tokens per second: ${count(history.written.at(-1))} written now.`);
    this.plots.bytes.show([time, history.ram, history.disk],
      `Cache: ${count(history.ram.at(-1))} MiB in memory, ${count(history.disk.at(-1))} on disk.`);
    const { answers } = state;
    const order = answers.map((_, i) => i + 1);
    const cached = answers.map((answer) => answer.cached_tokens);
    const known = answers.map((answer, i) => cached[i] + answer.detail.replayed_tokens);
    this.plots.answers.show([order, answers.map((answer) => answer.prompt_tokens), known, cached],
      `Prompt tokens of the last ${count(answers.length)} answers.`);
    this.plots.first.show([order, answers.map((answer) => answer.first_token_seconds)],
      `Seconds to the first token of the last ${count(answers.length)} answers.`);
    this.showDays();
  }

  showDays() {
    if (this.days.length === 0) return;
    const at = this.days.map(([day]) => Date.parse(`${day}T00:00:00Z`) / 1000);
    const row = (name) => this.days.map(([, sum]) => sum[name]);
    const days = `${count(this.days.length)} days`;
    this.plots.days.show([at, row('hit'), row('miss'), row('output')], `Tokens of ${days}.`);
    this.plots.cost.show([at, row('cost')], `Price of ${days}.`);
  }

  async loadLedger() {
    this.ledgerAt = Date.now();
    let usage = null;
    try {
      usage = await getJson('v1/usage');
    } catch (error) {
      setText(byId('ledger-note'), error.message);
      return;
    }
    this.days = sumByDay(usage.data);
    const mixed = new Set(usage.data.map((row) => row.currency)).size > 1;
    let note = '';
    if (!usage.kept) note = 'This server keeps no ledger.';
    else if (usage.data.length === 0) note = 'The ledger is empty.';
    else if (mixed) note = 'The plot of prices adds up several currencies.';
    setText(byId('ledger-note'), note);
    const rows = usage.data.slice(-kLedgerRowsShownMax).reverse();
    byId('ledger').hidden = rows.length === 0;
    byId('ledger').tBodies[0].replaceChildren(...rows.map((row) => element('tr', {},
      ...[row.day, row.key || '–', row.model, count(row.requests),
        count(row.prompt_cache_hit_tokens), count(row.prompt_cache_miss_tokens),
        count(row.completion_tokens), price(row.cost, row.currency),
      ].map((text) => element('td', {}, text)))));
    this.showDays();
  }

  recolour() {
    for (const plot of Object.values(this.plots)) plot.recolour();
  }
}

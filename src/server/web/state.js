// Asks GET /api/state once a second while somebody looks, and remembers what it said.
import { getJson } from './api.js';

const kPollMs = 1000;
const kPollMsAfterError = 4000;
const kSamplesMax = 3600;

export class StatePoller {
  // on.state(state, history), on.fault(error)
  constructor(on) {
    this.on = on;
    this.last = null;
    this.history = { time: [], computed: [], cached: [], written: [], ram: [], disk: [] };
    this.timer = 0;
    this.asking = false;
    document.addEventListener('visibilitychange', () => this.wake());
    this.wake();
  }

  // Asks now, and goes on asking.
  wake() {
    clearTimeout(this.timer);
    if (document.visibilityState === 'visible' && !this.asking) this.ask();
  }

  async ask() {
    this.asking = true;
    let pause = kPollMs;
    try {
      const state = await getJson('api/state');
      this.remember(state);
      this.on.state(state, this.history);
    } catch (error) {
      pause = kPollMsAfterError;
      this.on.fault(error);
    }
    this.asking = false;
    if (document.visibilityState === 'visible') {
      this.timer = setTimeout(() => this.ask(), pause);
    }
  }

  remember(state) {
    const now = Date.now() / 1000;
    const { history, last } = this;
    const cached = state.cached_ram_tokens + state.cached_disk_tokens;
    // Counters that fell are those of a server that was started anew.
    const known = last && state.uptime_seconds >= last.uptime;
    const perSecond = (value, before) => (known && now > last.time
      ? Math.max(0, value - before) / (now - last.time) : null);
    history.time.push(now);
    history.computed.push(perSecond(state.computed_tokens, last?.computed));
    history.cached.push(perSecond(cached, last?.cached));
    history.written.push(perSecond(state.answer_tokens, last?.written));
    history.ram.push(state.cache.ram_used_bytes / 2 ** 20);
    history.disk.push(state.cache.disk_used_bytes / 2 ** 20);
    if (history.time.length > kSamplesMax) {
      for (const row of Object.values(history)) row.shift();
    }
    this.last = {
      time: now, uptime: state.uptime_seconds, computed: state.computed_tokens, cached,
      written: state.answer_tokens,
    };
  }
}

// The bar of one prompt: what of it was cached, what was run again, what was new.
import { element } from './dom.js';
import { count } from './format.js';

const kParts = [
  ['ram', 'cached_ram_tokens', 'cached in memory'],
  ['disk', 'cached_disk_tokens', 'cached on disk'],
  ['replayed', 'replayed_tokens', 'replayed'],
  ['computed', 'computed_tokens', 'computed'],
];

// Why not more was cached, for a person; docs/cache.md has the reasons.
const kReasons = {
  none: 'everything known was used',
  cold: 'nothing that begins like this was seen',
  diverged: 'differs from what is cached',
  evicted: 'it was cached and had to go',
  other_tenant: 'cached for somebody else only',
  other_model: 'cached for another model only',
  below_granularity: 'too short to be cached',
  damaged: 'its record on disk was damaged',
  no_snapshot: 'run again from the last snapshot',
  no_room: 'on disk, and memory has no room for it',
};

export function newBar() {
  const bar = element('div', { class: 'bar', role: 'img' });
  for (const [name] of kParts) bar.append(element('span', { class: name }));
  return bar;
}

// detail: the member `minke` of a usage. Widths are shares of the prompt, unrounded.
export function fillBar(bar, detail) {
  let sum = 0;
  for (const [, member] of kParts) sum += detail[member] ?? 0;
  const words = [];
  kParts.forEach(([, member, label], i) => {
    const tokens = detail[member] ?? 0;
    bar.children[i].style.width = sum > 0 ? `${(100 * tokens) / sum}%` : '0';
    if (tokens > 0) words.push(`${count(tokens)} ${label}`);
  });
  const text = `Prompt tokens: ${words.join(', ') || 'none'}`;
  bar.setAttribute('aria-label', text);
  bar.title = text;
}

// "900 cached (20 from disk), 4 replayed, 20 computed"
export function tokensLine(detail) {
  const disk = detail.cached_disk_tokens ?? 0;
  const cached = (detail.cached_ram_tokens ?? 0) + disk;
  const from = disk > 0 ? ` (${count(disk)} from disk)` : '';
  return `${count(cached)} cached${from}, ${count(detail.replayed_tokens)} replayed, ` +
    `${count(detail.computed_tokens)} computed`;
}

export function reasonLine(detail) {
  const reason = kReasons[detail.miss_reason] ?? detail.miss_reason ?? '';
  // A cold prompt differs from its beginning on: no news.
  const place = detail.first_difference > 0
    ? `, from token ${count(detail.first_difference)} on` : '';
  return reason + place;
}

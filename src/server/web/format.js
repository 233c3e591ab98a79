// Numbers as people read them. The page is in English, whatever the browser speaks.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const currencySigns = { USD: '$', CNY: '¥', EUR: '€' };

export function count(value) {
  return whole.format(Number.isFinite(value) ? value : 0);
}

export function bytes(value) {
  let rest = Number.isFinite(value) ? value : 0;
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (rest < 1024) return `${rest.toFixed(rest < 10 && unit !== 'B' ? 1 : 0)} ${unit}`;
    rest /= 1024;
  }
  return `${rest.toFixed(1)} TiB`;
}

// Answers of a small model cost millionths of a dollar: two digits that mean something, always.
export function price(cost, currency) {
  const sign = currencySigns[currency] ?? `${currency || ''} `;
  if (!Number.isFinite(cost) || cost <= 0) return `${sign}0`;
  if (cost >= 1) return `${sign}${cost.toFixed(2)}`;
  const digits = Math.min(10, Math.max(2, 1 - Math.floor(Math.log10(cost))));
  return `${sign}${cost.toFixed(digits)}`;
}

export function seconds(value) {
  if (!Number.isFinite(value)) return '–';
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value % 86400) / 3600)} h`;
}

// "31.4 tokens/s", or "" where nothing was measured.
export function rate(tokens, duration) {
  if (!(tokens > 0) || !(duration > 0)) return '';
  const value = tokens / duration;
  return `${value < 100 ? value.toFixed(1) : whole.format(value)} tokens/s`;
}

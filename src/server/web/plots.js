// Plots with uPlot, in the colours of the page.

const kHeight = 180;
const kPlotWidthMin = 200;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// more: what this axis has of its own. uPlot takes a member that is undefined for a wish.
function axis(more) {
  return {
    stroke: () => colour('quiet'),
    grid: { stroke: () => colour('line'), width: 1 },
    ticks: { stroke: () => colour('line'), width: 1 },
    ...more,
  };
}

// One plot in an element. series: {label, colour, bars, value(number) -> text}.
// x: 'time' (seconds since 1970, local), 'day' (the same, UTC) or 'number'.
export class Plot {
  constructor(holder, x, series) {
    this.holder = holder;
    this.x = x;
    this.series = series;
    this.plot = null;
    new ResizeObserver(() => this.resize()).observe(holder);
  }

  width() {
    return Math.max(kPlotWidthMin, this.holder.clientWidth);
  }

  resize() {
    if (this.plot && this.holder.clientWidth > 0 && this.plot.width !== this.width()) {
      this.plot.setSize({ width: this.width(), height: kHeight });
    }
  }

  // data: the x values, then one row of values a series. summary: the plot in words.
  show(data, summary) {
    if (this.holder.clientWidth === 0) return;
    if (!this.plot) this.plot = new globalThis.uPlot(this.options(), data, this.holder);
    else this.plot.setData(data);
    this.holder.setAttribute('role', 'img');
    this.holder.setAttribute('aria-label', summary);
  }

  recolour() {
    this.plot?.redraw(false, true);
  }

  options() {
    const { uPlot } = globalThis;
    const { value } = this.series[0];
    // A bar stands around its place and needs room at both ends.
    const room = { number: 0.5, day: 43_200, time: 0 }[this.x];
    const days = this.x !== 'day' ? {}
      : { tzDate: (at) => uPlot.tzDate(new Date(at * 1000), 'Etc/UTC') };
    const steps = { number: { incrs: [1, 2, 5, 10, 20, 50, 100] }, time: {},
      day: { incrs: [1, 2, 5, 10, 30, 90, 365].map((step) => step * 86_400) } }[this.x];
    return {
      ...days,
      width: this.width(),
      height: kHeight,
      scales: {
        x: { time: this.x !== 'number', range: (_, low, high) => [low - room, high + room] },
        y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] },
      },
      axes: [axis(steps),
        axis({ values: (_, splits) => splits.map((split) => value(split)), size: 72 })],
      cursor: { drag: { x: false, y: false } },
      series: [
        this.x === 'number' ? { label: 'answer' } : {},
        ...this.series.map((one) => ({
          label: one.label,
          stroke: () => colour(one.colour),
          width: 2,
          ...(one.bars ? {
            fill: () => colour(one.colour),
            points: { show: false },
            paths: uPlot.paths.bars({ size: [0.7, 40] }),
          } : {}),
          value: (_, at) => (at === null || at === undefined ? '–' : one.value(at)),
        })),
      ],
    };
  }
}

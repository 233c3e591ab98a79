// Plots with uPlot, in the colours of the page.

const kHeight = 180;
const kPlotWidthMin = 200;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function axis(values) {
  return {
    stroke: () => colour('quiet'),
    grid: { stroke: () => colour('line'), width: 1 },
    ticks: { stroke: () => colour('line'), width: 1 },
    values,
    size: values ? 64 : undefined,
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
    const value = this.series[0].value;
    return {
      width: this.width(),
      height: kHeight,
      tzDate: this.x === 'day' ? (at) => uPlot.tzDate(new Date(at * 1000), 'Etc/UTC') : undefined,
      scales: {
        x: { time: this.x !== 'number' },
        y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] },
      },
      axes: [axis(), axis((_, splits) => splits.map((split) => value(split)))],
      cursor: { drag: { x: false, y: false } },
      series: [
        this.x === 'number' ? { label: 'answer' } : {},
        ...this.series.map((one) => ({
          label: one.label,
          stroke: () => colour(one.colour),
          fill: one.bars ? () => colour(one.colour) : undefined,
          width: 2,
          points: { show: one.bars ? false : undefined, size: 4 },
          paths: one.bars ? uPlot.paths.bars({ size: [0.7, 40] }) : undefined,
          value: (_, at) => (at === null || at === undefined ? '–' : one.value(at)),
        })),
      ],
    };
  }
}

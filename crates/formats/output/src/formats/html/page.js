(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const by = (id) => document.getElementById(id);
const make = (tag, text, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
};

// Texts.
const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us'], [1, 'ns']];
const time = (ns) => {
  const sign = ns < 0 ? '-' : '';
  const size = Math.abs(ns);
  const [of, unit] = UNITS.find(([of]) => size >= of) || UNITS[3];
  const value = size / of;
  return sign + (of === 1 ? String(Math.round(value)) : value.toFixed(3)) + ' ' + unit;
};
// A place on the axis, with as many digits as the length of what is shown makes sense of.
const place = (ns, length) => {
  const digits = Math.min(9, Math.max(0, 12 - Math.floor(Math.log10(Math.max(length, 1)))));
  return (ns / 1e9).toFixed(digits) + ' s';
};
const bytes = (count) => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return (at ? count.toFixed(1) : String(count)) + ' ' + units[at];
};
const percent = (part, all) => (part * 100 / Math.max(all, 1)).toFixed(1) + ' %';

// The heading.
const many = data.processes.length > 1;
const nameOf = (process) => 'process ' + process.pid + ' ' + ((process.command[0] || '').split('/').pop() || '');
by('title').textContent = many ? data.processes.length + ' processes' : nameOf(data.processes[0] || {pid: '', command: []}) ;
document.title = by('title').textContent + ' - midair';
for (const process of data.processes) {
  const list = make('dl');
  const row = (key, value) => {
    if (value === '' || value === null) return;
    list.append(make('dt', key), make('dd', value));
  };
  row('Process', process.pid + '  ' + process.command.join(' '));
  row('Time', time(process.duration_ns) + (process.began ? ' from ' + process.began : '') + (process.host ? ' on ' + process.host : '')
    + (process.recorded_ns < process.duration_ns && process.gpus.length ? '; records cover ' + time(process.recorded_ns) + ' of it' : ''));
  if (process.outcome !== 'complete') row('Ended', process.outcome);
  const lost = Object.entries(process.lost).filter(([, count]) => count > 0);
  row('Records', process.records + (lost.length ? '; LOST: ' + lost.map(([what, count]) => count + ' ' + what).join(', ') : ', none lost')
    + (process.without_times ? '; ' + process.without_times + ' dispatches or copies have no times and are not in the timeline' : ''));
  if (process.longest_stop_ns !== null) {
    row('Pause', process.longest_stop_ns ? 'one thread of the application stood still for ' + time(process.longest_stop_ns) + ' at most'
      : 'none: no thread of the application was stopped');
  }
  const cost = [['cpu_in_process_ns', 'in the process'], ['cpu_beside_ns', 'beside it']].filter(([key]) => process[key] !== null)
    .map(([key, where]) => percent(process[key], process.duration_ns) + ' of a core ' + where);
  if (cost.length) row('Overhead', 'midair took ' + cost.join(', '));
  if (process.main_loop) row('Steps', process.main_loop.text);
  for (const gpu of process.gpus) {
    const parts = [['busy', gpu.busy_ns], ['copies', gpu.copies_ns], ['starting', gpu.starting_ns], ['host waits', gpu.host_waits_ns],
      ['nothing queued', gpu.nothing_queued_ns]];
    const all = parts.reduce((sum, [, ns]) => sum + (ns || 0), 0);
    row(gpu.name + ' ' + gpu.model, parts.map(([what, ns]) => what + ' ' + (ns === null ? '-' : percent(ns, all))).join(', '));
  }
  if (process.gpus_without_work) row('Other GPUs', process.gpus_without_work + ' did nothing for this process');
  for (const [reason, count] of process.untimed) row('Without times', count + ': ' + reason);
  for (const note of process.notes) row('Note', note);
  by('processes').append(list);
}

// The rows of the timeline. Spans that overlap are on lanes below each other.
const LANE = 14, TITLE = 16, AXIS = 20, CURVE = 36, MOST_LANES = 12;
const rows = [];
const prefix = (process) => many ? nameOf(data.processes[process]) + ': ' : '';
for (const given of data.rows) {
  const spans = [];
  const read = (numbers, step, build) => {
    let start = 0;
    for (let at = 0; at < numbers.length; at += step) {
      start += numbers[at];
      spans.push(build(start, numbers, at));
    }
  };
  read(given.spans, 4, (start, n, at) => ({start, end: start + n[at + 1], name: n[at + 2], value: n[at + 3], count: 1, sum: n[at + 1]}));
  read(given.merged, 6, (start, n, at) => ({start, end: start + n[at + 1], name: n[at + 2], count: n[at + 3], sum: n[at + 4], longest: n[at + 5]}));
  if (!spans.length) continue;
  spans.sort((a, b) => a.start - b.start || b.end - a.end);
  const lanes = [];
  for (const span of spans) {
    let lane = lanes.findIndex((lane) => lane.until <= span.start);
    if (lane < 0) {
      lane = Math.min(lanes.length, MOST_LANES - 1);
      if (lane === lanes.length) lanes.push({spans: [], until: 0});
    }
    lanes[lane].spans.push(span);
    lanes[lane].until = Math.max(span.end, span.start + 1);
  }
  rows.push({name: prefix(given.process) + given.name, lanes: lanes.map((lane) => lane.spans), height: TITLE + lanes.length * LANE + 4});
}
for (const given of data.curves) {
  const steps = [];
  let most = 0;
  for (let at = 0; at < given.values.length; at += 3) {
    const [start, length, value] = given.values.slice(at, at + 3);
    steps.push({start, end: start + length, value});
    most = Math.max(most, value);
  }
  if (steps.length) rows.push({name: prefix(given.process) + given.name, steps, most, height: TITLE + CURVE + 4});
}
let below = AXIS;
for (const row of rows) { row.top = below; below += row.height; }

const isEmpty = !rows.length && !data.tables.some((table) => table.rows.length);
by('empty').hidden = !isEmpty;
by('timeline').hidden = !rows.length;
if (data.bucket || data.counters_merged || data.counters_left_out) {
  const words = [];
  if (data.bucket) {
    words.push('The recording has ' + data.records + ' spans, more than a page can show. Those shorter than ' + time(data.bucket)
      + ' are merged with their neighbours: such a span says how many it stands for. Other formats have each by itself.');
  }
  if (data.counters_merged) words.push('Values of counters are means of several.');
  if (data.counters_left_out) words.push(data.counters_left_out + ' values of further counters were left out.');
  by('merged').textContent = words.join(' ');
  by('merged').hidden = false;
}

// What is shown.
const whole = [Math.min(data.begin, 0), Math.max(data.end, data.begin + 1000)];
let from = whole[0], until = whole[1];
let marked = null, pinned = null;
const view = by('view'), canvas = by('canvas'), space = by('space'), tip = by('tip');
const paper = canvas.getContext('2d');
const COLOURS = {kernel: [150, 45], copy: [25, 60], call: [215, 45], range: [280, 40], wait: [0, 0], memory: [50, 55], driver: [330, 40]};
const dark = matchMedia('(prefers-color-scheme: dark)');
const colours = new Map();
const colour = (name) => {
  const key = name * 2 + (dark.matches ? 1 : 0);
  if (!colours.has(key)) {
    const [category, text] = data.names[name];
    let hash = 0;
    for (const letter of text) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
    const [hue, strength] = COLOURS[category] || [0, 0];
    const light = (dark.matches ? 32 : 62) + hash % 16;
    colours.set(key, 'hsl(' + (hue + (hash >>> 8) % 36 - 18) + ' ' + strength + '% ' + light + '%)');
  }
  return colours.get(key);
};
let width = 0, height = 0;
const resize = () => {
  height = Math.min(below, Math.max(120, innerHeight * 0.7 - 2));
  view.style.height = (height + 2) + 'px';
  space.style.height = below + 'px';
  // Without the width of a scroll bar that the heights may have brought or taken away.
  width = view.clientWidth;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = width + 'px';
  canvas.style.height = height + 'px';
  paper.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw();
};
const x = (ns) => (ns - from) / (until - from) * width;
// The first of these whose end is behind this time.
const first = (spans, ns) => {
  let low = 0, high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle].end <= ns) low = middle + 1; else high = middle;
  }
  return low;
};
function draw() {
  if (!rows.length || !width) return;
  const top = view.scrollTop;
  canvas.style.transform = 'translateY(' + top + 'px)';
  const ink = dark.matches ? '#ddd' : '#222';
  paper.clearRect(0, 0, width, height);
  paper.font = '11px system-ui, sans-serif';
  paper.textBaseline = 'middle';
  for (const row of rows) {
    const y = row.top - top;
    if (y > height || y + row.height < 0) continue;
    paper.fillStyle = '#8881';
    paper.fillRect(0, y, width, TITLE - 2);
    paper.fillStyle = ink;
    paper.fillText(row.name + (row.steps ? '  (to ' + Number(row.most.toPrecision(4)) + ')' : ''), 4, y + TITLE / 2 - 1);
    if (row.steps) curve(row, y + TITLE, ink); else row.lanes.forEach((spans, lane) => drawLane(spans, y + TITLE + lane * LANE, ink));
  }
  axis(ink);
  by('range').textContent = place(from, until - from) + ' to ' + place(until, until - from) + ' (' + time(until - from) + ')';
}
function drawLane(spans, y, ink) {
  let drawn = -1;
  for (let at = first(spans, from); at < spans.length && spans[at].start < until; at += 1) {
    const span = spans[at];
    const left = Math.max(0, x(span.start));
    const right = Math.min(width, Math.max(x(span.end), left + 1));
    if (right <= drawn + 0.5 && span !== pinned && (marked === null || span.name !== marked)) continue;
    drawn = right;
    paper.fillStyle = marked !== null && span.name === marked ? '#d33' : colour(span.name);
    if (span.count > 1) {
      // As high as the share of the time that is taken.
      const share = Math.min(1, span.sum / Math.max(span.end - span.start, 1));
      const tall = Math.max(3, (LANE - 2) * share);
      paper.fillRect(left, y + LANE - 2 - tall, right - left, tall);
    } else {
      paper.fillRect(left, y, right - left, LANE - 2);
    }
    if (span === pinned) {
      paper.strokeStyle = ink;
      paper.strokeRect(left + 0.5, y + 0.5, Math.max(right - left - 1, 1), LANE - 3);
    }
    if (right - left > 40) {
      paper.save();
      paper.beginPath();
      paper.rect(left, y, right - left - 2, LANE);
      paper.clip();
      paper.fillStyle = ink;
      paper.fillText((span.count > 1 ? span.count + 'x ' : '') + data.names[span.name][1], left + 3, y + LANE / 2);
      paper.restore();
    }
  }
}
function curve(row, y, ink) {
  paper.fillStyle = 'hsl(190 50% 50% / .6)';
  let drawn = -1;
  for (let at = first(row.steps, from); at < row.steps.length && row.steps[at].start < until; at += 1) {
    const step = row.steps[at];
    const left = Math.max(0, x(step.start)), right = Math.min(width, Math.max(x(step.end), left + 1));
    if (right <= drawn + 0.3) continue;
    drawn = right;
    const tall = Math.max(1, CURVE * step.value / Math.max(row.most, Number.MIN_VALUE));
    paper.fillRect(left, y + CURVE - tall, right - left, tall);
  }
}
function axis(ink) {
  paper.fillStyle = dark.matches ? '#222' : '#eee';
  paper.fillRect(0, 0, width, AXIS - 2);
  paper.fillStyle = ink;
  const rough = (until - from) / Math.max(2, width / 110);
  const base = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map((n) => n * base).find((n) => n >= rough) || rough;
  for (let at = Math.ceil(from / step) * step; at < until; at += step) {
    paper.fillRect(x(at), 0, 1, AXIS - 2);
    paper.fillText(place(at, step * 10), x(at) + 3, AXIS / 2 - 1);
  }
}
let waits = false;
const later = () => {
  if (waits) return;
  waits = true;
  requestAnimationFrame(() => { waits = false; draw(); });
};
const show = (start, end) => {
  const least = 20, most = whole[1] - whole[0];
  const length = Math.min(Math.max(end - start, Math.min(least, most)), most);
  from = Math.min(Math.max((start + end - length) / 2, whole[0]), whole[1] - length);
  until = from + length;
  draw();
};
const zoom = (by, share = 0.5) => {
  const at = from + (until - from) * share, length = (until - from) * by;
  show(at - length * share, at + length * (1 - share));
};
const move = (share) => { const by = (until - from) * share; show(from + by, until + by); };
const actions = {
  in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.25), right: () => move(0.25), all: () => show(whole[0], whole[1]),
};
for (const id of Object.keys(actions)) by(id).addEventListener('click', actions[id]);
const keys = {w: 'in', '+': 'in', '=': 'in', s: 'out', '-': 'out', a: 'left', ArrowLeft: 'left', d: 'right', ArrowRight: 'right', 0: 'all'};
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === 'INPUT') return;
  const action = keys[event.key];
  if (action) { actions[action](); event.preventDefault(); }
});
view.addEventListener('scroll', later);
view.addEventListener('wheel', (event) => {
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - view.getBoundingClientRect().left) / width);
}, {passive: false});

// What is under the pointer.
const under = (event) => {
  const box = view.getBoundingClientRect();
  const ns = from + (event.clientX - box.left) / width * (until - from);
  const y = event.clientY - box.top + view.scrollTop;
  const row = rows.find((row) => y >= row.top && y < row.top + row.height);
  if (!row) return null;
  // Within two pixels.
  const near = 2 * (until - from) / width;
  const spans = row.steps || row.lanes[Math.floor((y - row.top - TITLE) / LANE)];
  if (!spans) return {row, text: row.name};
  let found = null;
  for (let at = first(spans, ns - near); at < spans.length && spans[at].start <= ns + near; at += 1) {
    found = spans[at];
    if (found.end > ns) break;
  }
  if (!found) return {row, text: row.name};
  if (row.steps) return {row, text: row.name + '\n' + found.value + '\nfrom ' + place(found.start, 1) + ' for ' + time(found.end - found.start)};
  const [category, name] = data.names[found.name];
  const lines = [];
  if (found.count > 1) {
    lines.push(found.count + ' of these within ' + time(found.end - found.start) + ', ' + time(found.sum) + ' together',
      'the longest: ' + name + ' (' + category + '), ' + time(found.longest));
  } else {
    lines.push(name, category + ', ' + time(found.sum));
    if (category === 'kernel' && found.value) lines.push('dispatch ' + found.value);
    if ((category === 'copy' || category === 'memory') && found.value) {
      lines.push(bytes(found.value) + (category === 'copy' && found.sum ? ', ' + (found.value / found.sum).toFixed(2) + ' GB/s' : ''));
    }
  }
  lines.push('from ' + place(found.start, 1), row.name);
  return {row, span: found, text: lines.join('\n')};
};
let dragged = null;
view.addEventListener('pointerdown', (event) => { dragged = {x: event.clientX, from, until, moved: false}; });
addEventListener('pointerup', () => { dragged = null; });
view.addEventListener('pointermove', (event) => {
  if (dragged && event.buttons) {
    const by = (dragged.x - event.clientX) / width * (dragged.until - dragged.from);
    dragged.moved = dragged.moved || Math.abs(dragged.x - event.clientX) > 3;
    show(dragged.from + by, dragged.until + by);
  }
  const found = under(event);
  tip.hidden = !found || !found.text;
  if (tip.hidden) return;
  tip.textContent = found.text;
  const size = tip.getBoundingClientRect();
  tip.style.left = Math.max(0, Math.min(event.clientX + 12, innerWidth - size.width - 4)) + 'px';
  tip.style.top = Math.max(0, event.clientY + 16 + size.height > innerHeight ? event.clientY - size.height - 8 : event.clientY + 16) + 'px';
});
view.addEventListener('pointerleave', () => { tip.hidden = true; });
view.addEventListener('click', (event) => {
  const found = under(event);
  pinned = found && found.span || null;
  by('details').textContent = found && found.span ? found.text : '';
  draw();
});

flame(data, {by, make, time, percent, bytes});

// Tables.
const SHOWN = 500;
const numbers = [(row) => row[2], (row) => row[3], (row) => row[2] ? row[3] / row[2] : 0, (row) => row[4], (row) => row[5], (row) => row[6]];
const HEADS = ['Calls', 'Total', 'Mean', 'Shortest', 'Longest', 'Deviation'];
const kernelNames = new Map(data.names.map(([category, name], number) => [category + ' ' + name, number]));
const words = (title) => title.charAt(0) + title.slice(1).toLowerCase();
data.tables.forEach((table, number) => {
  const section = make('section');
  section.id = 'table-' + number;
  section.append(make('h2', words(table.title)));
  if (table.note) section.append(make('p', table.note, 'note'));
  const all = table.rows.reduce((sum, row) => sum + row[3], 0);
  const search = make('input');
  search.type = 'search';
  search.placeholder = 'search ' + table.rows.length + (table.rows.length === 1 ? ' name' : ' names');
  search.setAttribute('aria-label', 'search ' + words(table.title));
  const grid = make('table'), head = make('tr'), body = make('tbody');
  const wide = make('div', undefined, 'wide');
  const more = make('button');
  more.type = 'button';
  let order = {of: (row) => row[3], descends: true}, limit = SHOWN;
  const fill = () => {
    const wanted = search.value.toLowerCase();
    const found = table.rows.filter((row) => !wanted || row[0].toLowerCase().includes(wanted) || (row[1] || '').toLowerCase().includes(wanted));
    const sign = order.descends ? -1 : 1;
    found.sort((a, b) => {
      const [one, other] = [order.of(a), order.of(b)];
      return one < other ? -sign : one > other ? sign : 0;
    });
    body.replaceChildren(...found.slice(0, limit).map((row) => {
      const line = make('tr');
      const name = make('td', row[0]);
      if (row[1]) name.title = row[1];
      if (table.kernels) {
        name.className = 'pick';
        name.addEventListener('click', () => {
          const span = kernelNames.get('kernel ' + row[0]);
          marked = marked === span || span === undefined ? null : span;
          for (const other of body.children) other.className = '';
          line.className = marked === null ? '' : 'marked';
          by('details').textContent = row[1] || row[0];
          draw();
        });
      }
      line.append(name);
      const cell = (text, value) => { const cell = make('td', text); cell.dataset.value = value; line.append(cell); };
      cell(String(row[2]), row[2]);
      for (const of of numbers.slice(1)) cell(time(of(row)), of(row));
      cell(percent(row[3], all), row[3] / Math.max(all, 1));
      return line;
    }));
    more.hidden = found.length <= limit;
    more.textContent = 'show all ' + found.length;
  };
  const column = (text, of, descends) => {
    const cell = make('th'), button = make('button', text);
    button.type = 'button';
    button.addEventListener('click', () => {
      order = {of, descends: order.of === of ? !order.descends : descends};
      for (const other of head.children) other.removeAttribute('aria-sort');
      cell.setAttribute('aria-sort', order.descends ? 'descending' : 'ascending');
      fill();
    });
    cell.append(button);
    head.append(cell);
  };
  column('Name', (row) => row[0].toLowerCase(), false);
  HEADS.forEach((text, at) => column(text, numbers[at], true));
  column('Share', (row) => row[3] / Math.max(all, 1), true);
  search.addEventListener('input', fill);
  more.addEventListener('click', () => { limit = Infinity; fill(); });
  const top = make('thead');
  top.append(head);
  grid.append(top, body);
  wide.append(grid);
  section.append(search, wide, more);
  by('tables').append(section);
  fill();
});

addEventListener('resize', resize);
dark.addEventListener('change', draw);
resize();
})();

'use strict';
// The flame graph: what the GPU did, by the stack that launched it.
const flame = (data, {by, make, time, percent, bytes}) => {
  if (!data.stacks.length) return;
  const BOX = 18, NARROWEST = 0.0005;
  const chart = by('flame'), search = by('flame-search'), found = by('flame-found');
  by('code').hidden = false;
  // In the order of each stack's numbers.
  const measures = [
    {name: 'GPU time', show: (ns) => time(ns) + ' of the GPU'},
    {name: 'launches', show: (count) => count + (count === 1 ? ' launch' : ' launches')},
    {name: 'delay from launch to start', show: (ns) => time(ns) + ' from launch to start'},
    {name: 'bytes copied', show: (count) => bytes(count) + ' copied'},
  ];
  const present = measures.map((_, at) => at).filter((at) => data.stacks.some(([numbers]) => numbers[at] > 0));
  // Which frames are shown, by the words of the option --stacks-by. Kernels and copies always are.
  const views = [
    {word: 'frame', name: 'by frame', has: () => true},
    {word: 'python', name: 'by Python', has: (part) => part === 'python' || part === 'module'},
    {word: 'operator', name: 'by operator', has: (part) => part !== 'inner'},
    {word: 'module', name: 'by module', has: (part) => part === 'module'},
    {word: 'kernel', name: 'by kernel', has: () => false},
  ];
  const parts = new Set(data.parts);
  const isThere = (view) => view.word === data.by || view.word === 'frame' || view.word === 'kernel'
    || parts.has(view.word) || (view.word === 'operator' && parts.has('inner'));
  const shown = views.filter(isThere);
  let view = shown.find((view) => view.word === data.by) || shown[0];
  // An operator is called once, and then once for each of its dispatch keys.
  const isAgain = (path, at) => view.word !== 'frame' && at > 0 && path[at] === path[at - 1] && data.parts[path[at]] === 'operator';
  const framesOf = (frames) => frames.filter((name) => data.parts[name] === null || (data.parts[name] === 'sampled' ? !isInverted : view.has(data.parts[name])))
    .filter((_, at, path) => !isAgain(path, at));
  let isInverted = false, isUpwards = false, measure = present[0] || 0, root = null, focus = null;
  const node = (name, parent) => ({name, parent, depth: parent ? parent.depth + 1 : 0, value: 0, sums: measures.map(() => 0), parts: new Map()});
  const add = (it, numbers) => {
    numbers.forEach((number, at) => { it.sums[at] += number; });
    it.value = it.sums[measure];
  };
  const build = () => {
    root = node('all', null);
    for (const [numbers, frames] of data.stacks) {
      const path = framesOf(frames);
      if (isInverted) path.reverse();
      let at = root;
      add(at, numbers);
      for (const name of path) {
        if (!at.parts.has(name)) at.parts.set(name, node(name, at));
        at = at.parts.get(name);
        add(at, numbers);
      }
    }
    focus = root;
  };
  const nameOf = (it) => it === root ? (data.processes.length > 1 ? 'all processes' : 'all') : data.frames[it.name];
  const about = (it) => {
    const sums = present.filter((at) => it.sums[at] > 0).map((at) => measures[at].show(it.sums[at]));
    const sampled = data.parts[it.name] === 'sampled' ? '\nthe share is from samples of program counters' : '';
    return nameOf(it) + '\n' + sums.join(', ') + sampled + '\n' + measures[measure].name + ': '
      + percent(it.value, root.value) + ' of all' + (focus === root ? '' : ', ' + percent(it.value, focus.value) + ' of ' + nameOf(focus));
  };
  const hue = (text) => {
    let hash = 0;
    for (const letter of text) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
    return hash % 360;
  };
  const draw = () => {
    const boxes = [], wanted = search.value.toLowerCase();
    let deepest = 0, hits = 0;
    const matches = (it) => wanted && nameOf(it).toLowerCase().includes(wanted);
    // What a match covers counts once, whatever else matches within it.
    const sum = (it) => {
      if (it !== root && matches(it)) { hits += it.value; return; }
      for (const part of it.parts.values()) sum(part);
    };
    const put = (it, left, width) => {
      const box = make('div', nameOf(it), matches(it) ? 'box hit' : 'box');
      if (data.parts[it.name] === 'sampled') box.classList.add('sampled');
      box.style.left = left * 100 + '%';
      box.style.width = width * 100 + '%';
      const strength = it.depth < focus.depth ? 5 : 45;
      box.style.background = 'hsl(' + hue(nameOf(it)) + ' ' + strength + '% 50% / .45)';
      box.title = about(it);
      box.tabIndex = 0;
      const zoom = () => { focus = it; draw(); };
      box.addEventListener('click', zoom);
      box.addEventListener('keydown', (event) => { if (event.key === 'Enter') zoom(); });
      boxes.push([box, it.depth]);
      deepest = Math.max(deepest, it.depth);
    };
    const walk = (it, left, width) => {
      put(it, left, width);
      const parts = [...it.parts.values()].sort((a, b) => b.value - a.value);
      for (const part of parts) {
        const share = width * part.value / Math.max(it.value, 1);
        if (share >= NARROWEST) walk(part, left, share);
        left += share;
      }
    };
    for (let around = focus.parent; around; around = around.parent) put(around, 0, 1);
    walk(focus, 0, 1);
    chart.style.height = (deepest + 1) * BOX + 'px';
    for (const [box, depth] of boxes) box.style.top = (isUpwards ? deepest - depth : depth) * BOX + 'px';
    chart.replaceChildren(...boxes.map(([box]) => box));
    if (wanted) sum(root);
    found.textContent = wanted ? percent(hits, root.value) + ' matches' : '';
  };
  const toggle = (id, change) => by(id).addEventListener('click', (event) => {
    change();
    event.target.setAttribute('aria-pressed', event.target.getAttribute('aria-pressed') !== 'true');
    build();
    draw();
  });
  toggle('flame-invert', () => { isInverted = !isInverted; });
  toggle('flame-up', () => { isUpwards = !isUpwards; });
  const choice = by('flame-measure');
  for (const at of present) {
    const option = make('option', measures[at].name);
    option.value = at;
    choice.append(option);
  }
  choice.addEventListener('change', () => { measure = Number(choice.value); build(); draw(); });
  const byChoice = by('flame-by');
  for (const it of shown) {
    const option = make('option', it.name);
    option.value = it.word;
    option.selected = it === view;
    byChoice.append(option);
  }
  byChoice.addEventListener('change', () => { view = shown.find((it) => it.word === byChoice.value); build(); draw(); });
  by('flame-all').addEventListener('click', () => { focus = root; draw(); });
  search.addEventListener('input', draw);
  build();
  draw();
};

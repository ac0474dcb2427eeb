'use strict';
// The flame graph: the GPU's time by the stack that launched the work.
const flame = (data, {by, make, time, percent}) => {
  if (!data.stacks.length) return;
  const BOX = 18, NARROWEST = 0.0005;
  const chart = by('flame'), search = by('flame-search'), found = by('flame-found');
  by('code').hidden = false;
  let isInverted = false, isByLaunches = false, root = null, focus = null;
  const node = (name, parent) => ({name, parent, depth: parent ? parent.depth + 1 : 0, value: 0, other: 0, parts: new Map()});
  const build = () => {
    root = node('all', null);
    for (const stack of data.stacks) {
      const [value, other] = isByLaunches ? [stack[1], stack[0]] : [stack[0], stack[1]];
      const path = isInverted ? [...stack[2]].reverse() : stack[2];
      let at = root;
      at.value += value;
      at.other += other;
      for (const name of path) {
        if (!at.parts.has(name)) at.parts.set(name, node(name, at));
        at = at.parts.get(name);
        at.value += value;
        at.other += other;
      }
    }
    focus = root;
  };
  const nameOf = (it) => it === root ? (data.processes.length > 1 ? 'all processes' : 'all') : data.frames[it.name];
  const about = (it) => {
    const [ns, count] = isByLaunches ? [it.other, it.value] : [it.value, it.other];
    return nameOf(it) + '\n' + time(ns) + ' of the GPU, ' + count + (count === 1 ? ' launch, ' : ' launches, ')
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
      box.style.left = left * 100 + '%';
      box.style.width = width * 100 + '%';
      box.style.top = it.depth * BOX + 'px';
      const strength = it.depth < focus.depth ? 5 : 45;
      box.style.background = 'hsl(' + hue(nameOf(it)) + ' ' + strength + '% 50% / .45)';
      box.title = about(it);
      box.tabIndex = 0;
      const zoom = () => { focus = it; draw(); };
      box.addEventListener('click', zoom);
      box.addEventListener('keydown', (event) => { if (event.key === 'Enter') zoom(); });
      boxes.push(box);
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
    chart.replaceChildren(...boxes);
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
  toggle('flame-launches', () => { isByLaunches = !isByLaunches; });
  by('flame-all').addEventListener('click', () => { focus = root; draw(); });
  search.addEventListener('input', draw);
  build();
  draw();
};

'use strict';
// The difference of two recordings: each stack has the GPU's nanoseconds before and after.
(() => {
  const by = (id) => document.getElementById(id);
  const data = JSON.parse(by('data').textContent);
  const BOX = 18, NARROWEST = 0.0005;
  const units = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us']];
  const time = (ns) => {
    const unit = units.find(([least]) => Math.abs(ns) >= least);
    return unit ? (ns / unit[0]).toPrecision(3) + ' ' + unit[1] : ns + ' ns';
  };
  const percent = (share) => (100 * share).toFixed(1) + '%';
  const totals = [0, 1].map((at) => Math.max(1, data.stacks.reduce((sum, [numbers]) => sum + numbers[at], 0)));
  let isInverted = false, isShare = data.normalized, root = null, focus = null;
  by('measure').value = isShare ? 'share' : 'time';
  const node = (name, parent) => ({name, parent, depth: parent ? parent.depth + 1 : 0, sums: [0, 0], parts: new Map()});
  const part = (it, at) => isShare ? it.sums[at] / totals[at] : it.sums[at];
  const value = (it) => part(it, 0) + part(it, 1);
  const build = () => {
    root = node(null, null);
    for (const [numbers, frames] of data.stacks) {
      let at = root;
      const path = isInverted ? [...frames].reverse() : frames;
      for (const name of [null, ...path]) {
        if (name !== null) {
          if (!at.parts.has(name)) at.parts.set(name, node(name, at));
          at = at.parts.get(name);
        }
        numbers.forEach((number, which) => { at.sums[which] += number; });
      }
    }
    focus = root;
  };
  const nameOf = (it) => it === root ? 'all' : data.frames[it.name];
  // From -1, all has gone, to 1, all is new.
  const change = (it) => (part(it, 1) - part(it, 0)) / Math.max(part(it, 0), part(it, 1), Number.MIN_VALUE);
  const about = (it) => {
    const [before, after] = it.sums, sign = after >= before ? '+' : '';
    return nameOf(it) + '\nbefore: ' + time(before) + ', ' + percent(before / totals[0]) + '   after: ' + time(after) + ', '
      + percent(after / totals[1]) + '\nchange: ' + sign + time(after - before) + (before ? ', ' + sign + percent((after - before) / before) : ', new');
  };
  const colour = (it) => {
    const by = change(it);
    return 'hsl(' + (by > 0 ? 0 : 220) + ' ' + Math.round(90 * Math.abs(by)) + '% 55% / .5)';
  };
  const draw = () => {
    const boxes = [], wanted = by('search').value.toLowerCase();
    let deepest = 0;
    const put = (it, left, width) => {
      const box = document.createElement('div');
      box.textContent = nameOf(it);
      box.className = wanted && nameOf(it).toLowerCase().includes(wanted) ? 'box hit' : 'box';
      box.style.left = left * 100 + '%';
      box.style.width = width * 100 + '%';
      box.style.top = it.depth * BOX + 'px';
      box.style.background = colour(it);
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
      for (const of of [...it.parts.values()].sort((a, b) => value(b) - value(a))) {
        const share = width * value(of) / Math.max(value(it), Number.MIN_VALUE);
        if (share >= NARROWEST) walk(of, left, share);
        left += share;
      }
    };
    for (let around = focus.parent; around; around = around.parent) put(around, 0, 1);
    walk(focus, 0, 1);
    by('flame').style.height = (deepest + 1) * BOX + 'px';
    by('flame').replaceChildren(...boxes);
    by('about').textContent = about(focus);
  };
  for (const which of ['before', 'after']) by(which).textContent = which + ': ' + data[which];
  by('all').addEventListener('click', () => { focus = root; draw(); });
  by('invert').addEventListener('click', (event) => {
    isInverted = !isInverted;
    event.target.setAttribute('aria-pressed', isInverted);
    build();
    draw();
  });
  by('measure').addEventListener('change', (event) => { isShare = event.target.value === 'share'; build(); draw(); });
  by('search').addEventListener('input', draw);
  build();
  draw();
})();

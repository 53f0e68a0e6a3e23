(function () {
  'use strict';
  var svg = document.querySelector('svg.flame');
  var frames = Array.prototype.slice.call(svg.querySelectorAll('.f'));
  var width = +svg.dataset.width, height = +svg.getAttribute('height'), row = +svg.dataset.row, top = +svg.dataset.top;
  var depth = +svg.dataset.depth, icicle = svg.dataset.icicle === 'true';
  var details = document.getElementById('details');
  var reset = document.getElementById('reset');
  var zoomed = null;

  function data(frame) {
    return { x: +frame.dataset.x, w: +frame.dataset.w, d: +frame.dataset.d, n: frame.dataset.n };
  }

  // What has to go of a name is what is around the function's own.
  function fit(text, frame, room) {
    var fits = Math.floor((room - 6) / 7), name = frame.dataset.n;
    var path = frame.dataset.s || name, own = frame.dataset.o || path;
    var shown = [name, path, own].filter(function (form) { return form.length <= fits; })[0];
    text.textContent = fits < 3 ? '' : shown !== undefined ? shown : own.slice(0, fits - 1) + '\u2026';
  }

  // The picture is as wide as the window, and its boxes and letters as high as ever.
  function fill() {
    var room = document.body ? document.body.clientWidth : window.innerWidth;
    if (room < 200 || room === width) { return; }
    var before = width;
    width = room;
    svg.setAttribute('width', width);
    svg.setAttribute('viewBox', '0 0 ' + width + ' ' + height);
    Array.prototype.forEach.call(svg.querySelectorAll('[data-at]'), function (text) {
      text.setAttribute('x', text.dataset.at === 'middle' ? width / 2 : width - 8);
    });
    if (before !== width) { draw(); }
  }

  function draw() {
    var from = zoomed ? data(zoomed) : { x: 0, w: 1, d: 0 };
    frames.forEach(function (frame) {
      var at = data(frame), rect = frame.querySelector('rect'), text = frame.querySelector('text');
      var x = (at.x - from.x) / from.w, w = at.w / from.w;
      var outer = at.d < from.d && at.x <= from.x + 1e-9 && at.x + at.w >= from.x + from.w - 1e-9;
      if (outer) { x = 0; w = 1; }
      var shown = outer || (at.d >= from.d && x > -1e-6 && x + w < 1 + 1e-6);
      frame.style.display = shown ? '' : 'none';
      frame.classList.toggle('outer', outer);
      if (!shown) { return; }
      var y = top + (icicle ? at.d : depth - 1 - at.d) * row;
      rect.setAttribute('x', x * width);
      rect.setAttribute('y', y);
      rect.setAttribute('width', w * width);
      text.setAttribute('x', x * width + 3);
      text.setAttribute('y', y + 13);
      fit(text, frame, w * width);
    });
    if (!reset) { return; }
    if ('hidden' in reset) { reset.hidden = !zoomed; }
    reset.setAttribute('visibility', zoomed ? 'visible' : 'hidden');
  }

  function zoom(frame) {
    zoomed = frame && data(frame).d > 0 ? frame : null;
    draw();
  }

  // What was matched, each part of the picture once.
  function search(pattern) {
    var expression = null;
    try { expression = pattern ? new RegExp(pattern, 'i') : null; } catch (error) { return null; }
    var parts = [];
    frames.forEach(function (frame) {
      var at = data(frame), hit = !!expression && at.d > 0 && expression.test(at.n);
      frame.classList.toggle('hit', hit);
      if (hit) { parts.push([at.x, at.x + at.w]); }
    });
    parts.sort(function (a, b) { return a[0] - b[0]; });
    var sum = 0, end = 0;
    parts.forEach(function (part) {
      if (part[1] > end) { sum += part[1] - Math.max(part[0], end); end = part[1]; }
    });
    return expression ? (100 * sum).toFixed(2) + '% matched' : '';
  }

  frames.forEach(function (frame) {
    var title = frame.querySelector('title').textContent;
    frame.setAttribute('tabindex', '0');
    frame.addEventListener('click', function () { zoom(frame); });
    frame.addEventListener('keydown', function (event) {
      if (event.key === 'Enter') { zoom(frame); }
    });
    frame.addEventListener('mouseenter', function () { details.textContent = title; });
    frame.addEventListener('focus', function () { details.textContent = title; });
  });
  if (reset) { reset.addEventListener('click', function () { zoom(null); }); }
  var flip = document.getElementById('flip');
  if (flip) { flip.addEventListener('click', function () { icicle = !icicle; draw(); }); }
  var pattern = document.getElementById('pattern');
  var matched = document.getElementById('matched');
  function match() {
    var text = search(pattern.value);
    matched.textContent = text === null ? 'not a regular expression' : text;
  }
  // The address has the search, so that a link shows what was found.
  function keep() {
    var hash = pattern.value ? '#s=' + encodeURIComponent(pattern.value) : '';
    try {
      history.replaceState(null, '', location.pathname + location.search + hash);
    } catch (error) { /* A page without an address of its own has none to keep it in. */ }
  }
  function recall() {
    var kept = /^#s=(.*)$/.exec(location.hash);
    if (!kept) { return; }
    try { pattern.value = decodeURIComponent(kept[1]); } catch (error) { return; }
    match();
  }
  if (pattern) {
    pattern.addEventListener('input', function () { match(); keep(); });
    window.addEventListener('hashchange', recall);
    recall();
  }
  var button = document.getElementById('search');
  if (button) {
    button.addEventListener('click', function () {
      var text = search(window.prompt('Search (regular expression)', '') || '');
      button.textContent = text || 'Search';
    });
  }
  document.addEventListener('keydown', function (event) {
    if (event.key === 'Escape') { zoom(null); }
    var typing = /^(INPUT|TEXTAREA|SELECT)$/.test((event.target || {}).tagName || '');
    if (event.key !== '/' || typing || event.ctrlKey || event.metaKey || event.altKey) { return; }
    if (pattern) { pattern.focus(); pattern.select(); } else if (button) { button.dispatchEvent(new MouseEvent('click')); }
    event.preventDefault();
  });
  window.addEventListener('resize', fill);
  fill();
  // A page opens at its top: where the picture is higher than the window, all must not be out of sight.
  if (document.body && !icicle && height > window.innerHeight) { icicle = true; draw(); }
}());

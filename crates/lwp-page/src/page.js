// Keys, dragging, and pages that turn without a flash. Everything is done by the server: without this script links and
// forms do the same.
(function () {
  'use strict';
  var root = document.documentElement;
  var turning = null;

  function all(selector, within) { return Array.from((within || document).querySelectorAll(selector)); }
  function view() { return document.body.dataset.view; }

  // Turning pages: the answer's body takes the place of this one.

  function turn(address, options) {
    var url = new URL(address, location.href);
    if (turning) { turning.abort(); }
    turning = new AbortController();
    document.getElementById('main').classList.add('busy');
    return fetch(url, { signal: turning.signal }).then(function (answer) {
      var page = (answer.headers.get('content-type') || '').startsWith('text/html');
      if (!answer.ok || !page) { throw new Error('no page'); }
      return answer.text();
    }).then(function (text) {
      turning = null;
      if (!options || !options.back) {
        history.replaceState({ scroll: window.scrollY }, '');
        history.pushState({ scroll: 0 }, '', url);
      }
      show(new DOMParser().parseFromString(text, 'text/html'), options || {});
    }).catch(function (error) {
      if (error.name !== 'AbortError') { location.href = url; }
    });
  }

  function show(page, options) {
    var same = page.body.dataset.view === view();
    var scroll = options.back ? options.scroll || 0 : same && !options.top ? window.scrollY : 0;
    var typed = options.typed && document.activeElement ? document.activeElement.selectionStart : null;
    document.title = page.title;
    document.body.replaceWith(document.adoptNode(page.body));
    prepare();
    var hash = location.hash && document.getElementById(location.hash.slice(1));
    if (hash) { hash.scrollIntoView({ block: 'center' }); } else { window.scrollTo(0, scroll); }
    if (typed !== null) {
      var field = document.querySelector('.search input');
      field.focus();
      field.setSelectionRange(typed, typed);
    } else {
      document.getElementById('main').focus({ preventScroll: true });
    }
  }

  document.addEventListener('click', function (event) {
    var link = event.target.closest && event.target.closest('a[href]');
    if (event.target.closest && event.target.closest('[data-help]')) { document.getElementById('help').showModal(); return; }
    if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) { return; }
    var address = link.getAttribute('href');
    if (link.hasAttribute('download') || address.startsWith('#')) { return; }
    event.preventDefault();
    turn(address, { top: link.closest('nav') });
  });

  window.addEventListener('popstate', function (event) {
    if (event.state || !location.hash) { turn(location.href, { back: true, scroll: event.state && event.state.scroll }); }
  });

  function submit(form, options) {
    var words = new URLSearchParams(new FormData(form));
    Array.from(words.keys()).forEach(function (name) { if (!words.get(name)) { words.delete(name); } });
    turn(form.getAttribute('action') + '?' + words, options);
  }
  document.addEventListener('submit', function (event) {
    if (event.target.method !== 'get') { return; }
    event.preventDefault();
    submit(event.target);
  });
  document.addEventListener('change', function (event) {
    if (event.target.matches('.controls select')) { submit(event.target.form, { top: true }); }
  });
  var waiting = 0;
  document.addEventListener('input', function (event) {
    if (!event.target.matches('.search input') || view() === 'summary') { return; }
    clearTimeout(waiting);
    waiting = setTimeout(function () { submit(event.target.form, { typed: true }); }, 250);
  });

  // Pictures: a line of details for the box under the mouse or in focus.

  function details(event) {
    var box = event.target.closest && event.target.closest('svg.flame a');
    var line = document.getElementById('details');
    if (line) { line.textContent = box ? box.querySelector('title').textContent : line.dataset.empty; }
    var row = event.target.closest && event.target.closest('.code tr[data-line]');
    if (row && event.type !== 'focusin') { related(row.dataset.line); }
  }
  document.addEventListener('mouseover', details);
  document.addEventListener('focusin', details);

  // Code: a line's instructions are marked with it; the hottest rows can be gone to.

  function related(line) {
    all('.code tr.same').forEach(function (row) { row.classList.remove('same'); });
    all('.code tr[data-line="' + line + '"]').forEach(function (row) { row.classList.add('same'); });
  }
  var hot = -1;
  function hottest(step) {
    var links = all('[data-hot]');
    if (!links.length) { return; }
    hot = (hot + step + links.length) % links.length;
    var row = document.querySelector(links[hot].getAttribute('href'));
    row.scrollIntoView({ block: 'center' });
    if (!row.dataset.line) { return; }
    related(row.dataset.line);
    var source = document.getElementById(row.dataset.line);
    if (source) { source.scrollIntoView({ block: 'center' }); }
  }

  // The time line: a span is dragged.

  var drag = null;
  function place(event) {
    var box = drag.strip.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  }
  document.addEventListener('pointerdown', function (event) {
    var strip = event.target.closest && event.target.closest('[data-brush]');
    if (!strip || event.button !== 0) { return; }
    var brush = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    brush.setAttribute('class', 'brush');
    brush.setAttribute('height', '100%');
    strip.append(brush);
    drag = { strip: strip, brush: brush };
    drag.from = drag.to = place(event);
    event.preventDefault();
  });
  document.addEventListener('pointermove', function (event) {
    if (!drag) { return; }
    drag.to = place(event);
    drag.brush.setAttribute('x', 100 * Math.min(drag.from, drag.to) + '%');
    drag.brush.setAttribute('width', 100 * Math.abs(drag.to - drag.from) + '%');
  });
  document.addEventListener('pointerup', function () {
    if (!drag) { return; }
    var whole = +drag.strip.closest('.lanes').dataset.whole, done = drag;
    drag = null;
    done.brush.remove();
    if (Math.abs(done.to - done.from) < 0.003) { return; }
    var words = new URLSearchParams(location.search);
    words.set('from', Math.floor(Math.min(done.from, done.to) * whole));
    words.set('to', Math.ceil(Math.max(done.from, done.to) * whole));
    turn('time?' + words);
  });

  // Keys.

  function rows() {
    return all('tr[data-row], .tree summary, .tree div.branch').filter(function (row) { return row.getClientRects().length; });
  }
  function move(step) {
    var list = rows(), at = list.indexOf(document.querySelector('.here'));
    var next = list[Math.max(0, Math.min(list.length - 1, at + step))];
    if (!next) { return; }
    all('.here').forEach(function (row) { row.classList.remove('here'); });
    next.classList.add('here');
    var target = next.matches('summary') ? next : next.querySelector('a');
    if (target) { target.focus({ preventScroll: true }); }
    next.scrollIntoView({ block: 'nearest' });
  }
  function follow(selector) {
    var from = document.querySelector('.here') || document.activeElement;
    var link = from && from.querySelector && from.querySelector(selector) || document.querySelector('main ' + selector);
    if (link) { turn(link.getAttribute('href')); }
  }
  function back() {
    var out = document.querySelector('[data-out]');
    if (out) { turn(out.getAttribute('href')); }
    else if (new URLSearchParams(location.search).get('q')) {
      var words = new URLSearchParams(location.search);
      words.delete('q');
      turn(view() + '?' + words);
    }
  }
  function leaf(step) {
    var here = document.activeElement, branch = here && here.matches('summary') && here.parentElement;
    if (branch) { branch.open = step > 0; }
  }
  var keys = {
    j: function () { move(1); }, ArrowDown: function () { move(1); },
    k: function () { move(-1); }, ArrowUp: function () { move(-1); },
    ArrowRight: function () { leaf(1); }, ArrowLeft: function () { leaf(-1); },
    n: function () { hottest(1); }, p: function () { hottest(-1); },
    c: function () { follow('a.code, a[href^="code"]'); },
    f: function () { follow('a.flamelink, a[href^="flame"]'); },
    Backspace: function () { history.back(); }, Escape: back,
    '/': function () { document.querySelector('.search input').select(); },
    '?': function () { document.getElementById('help').showModal(); }
  };
  document.addEventListener('keydown', function (event) {
    var field = event.target.matches('input, select, textarea, dialog *');
    if (field && event.key === 'Escape' && event.target.matches('.search input')) { event.target.blur(); }
    if (field || event.ctrlKey || event.metaKey || event.altKey) { return; }
    var arrow = event.key.startsWith('Arrow');
    if (arrow && !document.querySelector('.here') && !event.target.closest('.tree')) { return; }
    var tab = document.querySelector('nav [data-key="' + CSS.escape(event.key) + '"]');
    if (tab) { event.preventDefault(); turn(tab.getAttribute('href'), { top: true }); return; }
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });

  function prepare() {
    root.classList.add('scripted');
    hot = -1;
    all('[data-help]').forEach(function (button) { button.hidden = false; });
    if (view() === 'code' && !location.hash) { hottest(1); window.scrollTo(0, 0); }
  }
  prepare();
}());

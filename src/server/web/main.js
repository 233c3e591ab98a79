// Puts the page together: views, theme, key, and the news from the server.
import { apiKey, getJson, setApiKey } from './api.js';
import { CacheView } from './cache.js';
import { Chat } from './chat.js';
import { byId, setText } from './dom.js';
import { StatePoller } from './state.js';
import { TotalsView } from './totals.js';

const kViews = ['chat', 'cache', 'totals'];

const cacheView = new CacheView();
const totalsView = new TotalsView();
let poller = null;
let last = null;
let needsModels = true;

const chat = new Chat({
  unauthorized: askForKey,
  changed: () => poller?.wake(),
});

function view() {
  return document.body.dataset.view;
}

function showView() {
  const wanted = location.hash.slice(1);
  // Other fragments, such as that of the skip link, are no views.
  if (kViews.includes(wanted)) document.body.dataset.view = wanted;
  for (const link of document.querySelectorAll('nav a')) {
    if (link.hash.slice(1) === view()) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  showState();
}

function showState() {
  if (!last) return;
  const { state, history } = last;
  cacheView.show(state, (id) => chat.titleOf(id), chat.current.id);
  if (view() === 'totals') totalsView.show(state, history);
}

function showNotice(text) {
  byId('notice').hidden = text === '';
  setText(byId('notice'), text);
}

function askForKey() {
  byId('key-form').hidden = false;
}

async function loadModels() {
  needsModels = false;
  try {
    const models = await getJson('v1/models');
    chat.setModels(models.data.map((model) => model.id));
  } catch {
    needsModels = true;
  }
}

function onState(state, history) {
  last = { state, history };
  byId('key-form').hidden = true;
  showNotice(state.random_weights
    ? 'The weights of this model are random: what it writes means nothing.' : state.ledger_warning);
  setText(byId('server-line'), `${state.model}, ${state.description}`);
  byId('server-line').title = `Minke ${state.version}`;
  if (needsModels) loadModels();
  showState();
}

function onFault(error) {
  if (error.status === 401) {
    if (byId('key-form').hidden) askForKey();
    showNotice(apiKey() === '' ? '' : error.message);
  } else {
    showNotice(`${error.message} Trying again.`);
  }
}

function showTheme() {
  const next = globalThis.minkeTheme.isDark() ? 'Light' : 'Dark';
  setText(byId('theme'), next);
  byId('theme').setAttribute('aria-label', `${next} colours`);
  totalsView.recolour();
}

byId('theme').addEventListener('click', () => {
  globalThis.minkeTheme.toggle();
  showTheme();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', showTheme);
byId('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  setApiKey(byId('key').value.trim());
  byId('key').value = '';
  poller.wake();
});
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  location.hash = 'chat';
  byId('message').focus();
});
addEventListener('hashchange', showView);
showTheme();
poller = new StatePoller({ state: onState, fault: onFault });
showView();
if (matchMedia('(pointer: fine)').matches) byId('message').focus();

// What a model writes, as elements. A model repeats what it reads, so its text is an attacker's:
// markup in it is shown and not obeyed, nothing is loaded for it, and DOMPurify has the last word.
import { Marked } from './vendor/marked.js';

const kTags = ['a', 'b', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5',
  'h6', 'hr', 'i', 'li', 'ol', 'p', 'pre', 's', 'strong', 'sub', 'sup', 'table', 'tbody', 'td',
  'th', 'thead', 'tr', 'ul'];
const kAttributes = ['align', 'class', 'href', 'start', 'title'];
const kLinkSchemes = ['http:', 'https:', 'mailto:'];

function escapeHtml(text) {
  const names = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  return text.replace(/[&<>"']/g, (character) => names[character]);
}

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }) => escapeHtml(text),
    // To load a picture would tell its host what the conversation is about.
    image: ({ href, text }) => escapeHtml(`[image: ${text || href}]`),
    checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
  },
});

function isLink(anchor) {
  try {
    return kLinkSchemes.includes(new URL(anchor.getAttribute('href') ?? '').protocol);
  } catch {
    return false;  // relative: there is nothing beside this page to point to
  }
}

// A DocumentFragment without anything that acts.
export function sanitise(html) {
  const fragment = globalThis.DOMPurify.sanitize(html, {
    ALLOWED_TAGS: kTags,
    ALLOWED_ATTR: kAttributes,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
  for (const anchor of fragment.querySelectorAll('a')) {
    if (isLink(anchor)) {
      anchor.setAttribute('target', '_blank');
      anchor.setAttribute('rel', 'noopener noreferrer nofollow');
    } else {
      anchor.removeAttribute('href');
    }
  }
  // A class of the page's own would let the model dress up as the page.
  for (const node of fragment.querySelectorAll('[class]')) {
    if (!/^language-[\w+#.-]{1,32}$/.test(node.getAttribute('class'))) {
      node.removeAttribute('class');
    }
  }
  for (const node of fragment.querySelectorAll('pre, table')) node.setAttribute('tabindex', '0');
  return fragment;
}

export function renderMarkdown(text) {
  return sanitise(marked.parse(text));
}

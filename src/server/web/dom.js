// The one way in which this page makes elements: text is always text, never markup.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children);
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

// Touches the page only where something changed: a screen reader and a selection notice.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Makes one element like another, changing only what differs: focus, scroll and selection stay.
// Children with a `data-key` or an id are matched by it; others by their place.
"use strict";

const KEPT = "data-keep"; // scripts own what is inside, and attributes that the page does not have

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") || node.id || null : null;
}

function sameKind(a, b) {
  return a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

export function morph(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.isEqualNode(to)) return;
  const wanted = to.attributes;
  for (let i = 0; i < wanted.length; i++) {
    const { name, value } = wanted[i];
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  if (from.hasAttribute(KEPT)) return;
  if (from.attributes.length !== wanted.length) {
    for (const name of from.getAttributeNames()) {
      if (name !== "open" && !to.hasAttribute(name)) from.removeAttribute(name);
    }
  }
  morphChildren(from, to);
}

function morphChildren(from, to) {
  let here = from.firstChild;
  let wanted = to.firstChild;
  // Mostly nothing was added, removed or moved.
  while (here && wanted && sameKind(here, wanted)) {
    morph(here, wanted);
    here = here.nextSibling;
    wanted = wanted.nextSibling;
  }
  if (here || wanted) rearrange(from, here, wanted);
}

function rearrange(from, here, wanted) {
  const keyed = new Map();
  for (let child = here; child; child = child.nextSibling) {
    const key = keyOf(child);
    if (key !== null) keyed.set(key, child);
  }
  for (; wanted; wanted = wanted.nextSibling) {
    const key = keyOf(wanted);
    const match = key === null ? here : keyed.get(key);
    if (match && sameKind(match, wanted)) {
      if (match === here) here = here.nextSibling;
      else from.insertBefore(match, here);
      morph(match, wanted);
    } else {
      from.insertBefore(document.importNode(wanted, true), here);
    }
  }
  while (here) {
    const next = here.nextSibling;
    here.remove();
    here = next;
  }
}

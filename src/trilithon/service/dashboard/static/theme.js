// Runs before the page is drawn: whoever chose a theme sees no other one first.
"use strict";
try {
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage the system's theme is used.
}

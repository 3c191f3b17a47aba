// Predicts while a slider moves: the page is asked again, and only the prediction is replaced.
"use strict";

import { morph } from "./morph.js";

const PAUSE_MS = 120;

export function followSliders() {
  const form = document.getElementById("what-if");
  if (!form) return;
  let timer = 0;
  let asked = 0;

  function show() {
    for (const input of form.querySelectorAll("input[type=range]")) {
      const output = input.nextElementSibling;
      const unit = input.name === "load" ? " ×" : "";
      output.textContent = Number(input.value) + unit;
      output.classList.toggle("changed", input.dataset.now !== undefined && input.value !== input.dataset.now);
    }
  }

  async function predict() {
    const mine = ++asked;
    const query = new URLSearchParams(new FormData(form));
    const address = `${location.pathname}?${query}`;
    const answer = await fetch(address, { headers: { Accept: "text/html" } });
    if (!answer.ok || mine !== asked) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const wanted = page.getElementById("prediction");
    if (wanted) morph(document.getElementById("prediction"), wanted);
    history.replaceState(null, "", address);
  }

  form.addEventListener("input", () => {
    show();
    clearTimeout(timer);
    timer = setTimeout(predict, PAUSE_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    predict();
  });
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    for (const input of form.querySelectorAll("input[type=range]")) input.value = input.dataset.now ?? 1;
    show();
    predict();
  });
  show();
}

"use strict";
(() => {
  const tools = document.querySelector(".tools");
  const cards = Array.from(document.querySelectorAll(".card"));
  const shown = document.getElementById("shown");
  const words = document.getElementById("words");
  const selects = Array.from(tools.querySelectorAll("select"));
  const texts = new Map(cards.map((card) => [card, card.textContent.toLowerCase()]));
  const fits = (card) =>
    selects.every((select) => {
      if (select.value === "") return true;
      if (select.name === "lowest") return Number(card.dataset.lowest) < Number(select.value);
      if (select.name === "state") return card.dataset.state === select.value;
      return card.dataset[select.name] === select.value;
    }) && words.value.toLowerCase().split(/\s+/).every((word) => texts.get(card).includes(word));
  const update = () => {
    let count = 0;
    for (const card of cards) {
      card.hidden = !fits(card);
      count += card.hidden ? 0 : 1;
    }
    shown.textContent = `${count} of ${cards.length} cards`;
  };
  tools.addEventListener("input", update);
  tools.hidden = false;
  update();
})();

// Under the pointer: which warps and events a cell of a picture is.
for (const map of document.querySelectorAll(".map")) {
  const svg = map.querySelector("svg"), said = map.querySelector("output");
  const { width, height } = svg.viewBox.baseVal, { warps, events, last } = map.dataset;
  svg.addEventListener("pointermove", (at) => {
    const box = svg.getBoundingClientRect();
    const cell = (part, all) => Math.max(0, Math.min(all - 1, Math.floor(part * all)));
    const row = cell((at.clientY - box.top) / box.height, height) * warps;
    const column = cell((at.clientX - box.left) / box.width, width) * events;
    said.value = `warps ${row} to ${Math.min(row + +warps - 1, last)}, events ${column} to ${column + +events - 1}`;
  });
  svg.addEventListener("pointerleave", () => { said.value = ""; });
}

// Searching, and "/" to get there. Without this every page still reads.
"use strict";
const input = document.querySelector("header input");

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(event.target.tagName)) {
    event.preventDefault();
    input.focus();
  }
});

if (typeof atlasData !== "undefined") {
  const shown = 200;
  const list = document.getElementById("results");
  const status = document.getElementById("status");
  const entries = [];
  for (const [name, file, kind, size, layouts] of atlasData.records) {
    const changes = layouts > 1 ? `, ${layouts} layouts` : "";
    entries.push({ name, rank: 1, kind, links: [[name, file]], more: `${size} byte${size === 1 ? "" : "s"}${changes}` });
  }
  for (const [name, file, kind, number] of atlasData.calls) {
    entries.push({ name, rank: 0, kind, number, links: [[name, file]], more: number });
  }
  for (const [name, url, value, place, tag] of atlasData.constants) {
    const more = `= ${value}, ${place} in ${tag}`;
    entries.push({ name, rank: 3, kind: "constant", links: [[name, url]], more });
  }
  for (const [name, ...records] of atlasData.fields) {
    const links = records.map((i) => atlasData.records[i].slice(0, 2));
    entries.push({ name, rank: 2, kind: "field", label: name, links, more: "" });
  }
  for (const entry of entries) entry.lower = entry.name.toLowerCase();

  // Smaller is better; undefined where it does not match.
  const score = (entry, words, number) => {
    if (number && entry.number === number) return 0;
    if (!words.every((word) => entry.lower.includes(word))) return undefined;
    if (entry.lower === words[0]) return 1;
    return (entry.lower.startsWith(words[0]) ? 2 : 3) + entry.lower.length / 1000;
  };

  const element = (name, text) => {
    const made = document.createElement(name);
    made.textContent = text;
    return made;
  };

  const link = ([name, file]) => {
    const made = element(file ? "a" : "span", name);
    if (file) made.href = file;
    return made;
  };

  const show = ({ kind, label, links, more }) => {
    const item = document.createElement("li");
    item.append(element("b", kind), " ");
    if (label) item.append(element("code", label), " of ");
    links.slice(0, 12).forEach((one, i) => item.append(i ? ", " : "", link(one)));
    if (links.length > 12) item.append(` and ${links.length - 12} more`);
    item.append(" ", element("small", more));
    return item;
  };

  const search = () => {
    const text = input.value.trim().toLowerCase();
    const words = text.split(/\s+/);
    // As the data has it: hexadecimal from 10 on.
    const value = /^(0x[0-9a-f]+|\d+)$/.test(text) ? Number(text) : NaN;
    const number = Number.isNaN(value) ? "" : value < 10 ? `${value}` : `0x${value.toString(16)}`;
    const found = [];
    if (text) {
      for (const entry of entries) {
        const points = score(entry, words, number);
        if (points !== undefined) found.push([points, entry]);
      }
    }
    found.sort(([a, x], [b, y]) => a - b || x.rank - y.rank || (x.name < y.name ? -1 : 1));
    list.replaceChildren(...found.slice(0, shown).map(([, entry]) => show(entry)));
    const cut = found.length > shown ? `, the first ${shown} shown` : "";
    status.textContent = text
      ? `${found.length} found${cut}`
      : "Type a part of a name, several parts, or a number such as 0x2b.";
  };

  input.value = new URLSearchParams(location.search).get("q") ?? "";
  input.addEventListener("input", search);
  input.form.addEventListener("submit", (event) => event.preventDefault());
  input.focus();
  search();
}

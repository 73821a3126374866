// Markdown to elements: headings, lists, quotes, tables, code, emphasis and links. Text never becomes markup.

function element(name, children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

const INLINE = /(`+)([^]*?[^`])\1(?!`)|\*\*([^*]+)\*\*|__([^_]+)__|\*([^*\s][^*]*)\*|\[([^\]]+)\]\((https?:[^)\s]+)\)/;

function inline(text) {
  const nodes = [];
  for (let match = INLINE.exec(text); match; match = INLINE.exec(text)) {
    if (match.index > 0) nodes.push(text.slice(0, match.index));
    if (match[2] !== undefined) {
      nodes.push(element("code", [match[2]]));
    } else if (match[3] ?? match[4]) {
      nodes.push(element("strong", inline(match[3] ?? match[4])));
    } else if (match[5]) {
      nodes.push(element("em", inline(match[5])));
    } else {
      const link = element("a", [match[6]]);
      link.href = match[7];
      link.rel = "noopener noreferrer";
      link.target = "_blank";
      nodes.push(link);
    }
    text = text.slice(match.index + match[0].length);
  }
  if (text) nodes.push(text);
  return nodes;
}

function codeBlock(text) {
  const copy = element("button", ["Copy"]);
  copy.type = "button";
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
  copy.hidden = !navigator.clipboard; // on addresses beyond this machine without https
  return element("pre", [element("code", [text]), copy]);
}

const cells = (line) => line.replace(/^\s*\||\|\s*$/g, "").split("|").map((cell) => inline(cell.trim()));
const isRule = (line) => line !== undefined && /^\s*\|?[\s:|-]*-[\s:|-]*$/.test(line) && line.includes("|");

function table(lines) {
  const row = (line, name) => element("tr", cells(line).map((cell) => element(name, cell)));
  return element("table", [element("thead", [row(lines[0], "th")]),
                           element("tbody", lines.slice(2).map((line) => row(line, "td")))]);
}

// Lines of a list, each with its depth.
function listOf(lines) {
  const first = /^(\s*)(?:[-*+]|(\d+)[.)])\s+/;
  const depth = first.exec(lines[0])[1].length;
  const list = document.createElement(first.exec(lines[0])[2] ? "ol" : "ul");
  if (list.nodeName === "OL") list.start = Number(first.exec(lines[0])[2]);
  for (let i = 0; i < lines.length;) {
    const text = lines[i].replace(first, "");
    let end = i + 1;
    while (end < lines.length && !(first.test(lines[end]) && first.exec(lines[end])[1].length <= depth)) end += 1;
    const inner = lines.slice(i + 1, end);
    const nested = inner.length > 0 && first.test(inner[0]) ? [listOf(inner)] : inner.map((line) => ` ${line.trim()}`);
    list.append(element("li", [...inline(text), ...nested]));
    i = end;
  }
  return list;
}

// The block that begins with line i, and the line behind it.
function block(lines, i) {
  const line = lines[i];
  const fence = /^\s*(```+|~~~+)/.exec(line);
  const until = (ends) => {
    let end = i + 1;
    while (end < lines.length && !ends(lines[end])) end += 1;
    return end;
  };
  if (fence) {
    const end = until((other) => other.trim().startsWith(fence[1]));
    return [codeBlock(lines.slice(i + 1, end).join("\n")), end + 1];
  }
  const heading = /^(#{1,6})\s+(.*)$/.exec(line);
  if (heading) return [element(`h${Math.min(heading[1].length + 1, 6)}`, inline(heading[2])), i + 1];
  if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) return [document.createElement("hr"), i + 1];
  if (line.startsWith(">")) {
    const end = until((other) => !other.startsWith(">"));
    return [element("blockquote", markdown(lines.slice(i, end).map((l) => l.replace(/^>\s?/, "")).join("\n"))), end];
  }
  if (/^\s*([-*+]|\d+[.)])\s+/.test(line)) {
    const end = until((other) => other.trim() === "" || /^(#|```|>)/.test(other));
    return [listOf(lines.slice(i, end)), end];
  }
  if (line.includes("|") && isRule(lines[i + 1])) {
    const end = until((other) => !other.includes("|"));
    return [table(lines.slice(i, end)), end];
  }
  const end = until((other) => other.trim() === "" || /^(#{1,6}\s|\s*```|>|\s*([-*+]|\d+[.)])\s)/.test(other));
  return [element("p", inline(lines.slice(i, end).join("\n"))), end];
}

// Returns the elements of a text.
export function markdown(text) {
  const lines = text.split("\n");
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (lines[i].trim() === "") {
      i += 1;
      continue;
    }
    const [made, next] = block(lines, i);
    blocks.push(made);
    i = next;
  }
  return blocks;
}

// Drawings in SVG, their colours, and files to take away. Colours are written into the drawing, so that a file of it
// looks as the page does.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = 20; // around a saved picture
const FONT = 'system-ui, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK KR", "Noto Sans CJK SC", sans-serif';

/** An element of a drawing; attributes whose value is null are left out. */
export function draw(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** A whole drawing of this size, which shrinks with its column. */
export function drawing(width, height, label, ...children) {
  return draw(
    "svg",
    {
      xmlns: SVG,
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": label,
      "font-family": FONT,
      "font-size": 13,
      fill: colour("ink"),
    },
    ...children,
  );
}

/** A colour of the theme by its name in style.css. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The colours of clusters, which also differ in lightness. */
export function clusterColour(number) {
  return colour(`cluster-${number % 6}`);
}

/** A colour between the theme's pale and full one; `part` runs from 0 to 1. */
export function shade(part) {
  const stops = ["heat-0", "heat-1", "heat-2", "heat-3"].map((name) => readHex(colour(name)));
  const place = Math.min(Math.max(part, 0), 1) * (stops.length - 1);
  const below = Math.min(Math.floor(place), stops.length - 2);
  const mixed = stops[below].map((value, i) => Math.round(value + (place - below) * (stops[below + 1][i] - value)));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** A colour for text on this one. */
export function inkOn(hex) {
  const [red, green, blue] = readHex(hex).map((value) => value / 255);
  return 0.3 * red + 0.59 * green + 0.11 * blue > 0.52 ? "#14181f" : "#ffffff";
}

function readHex(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** A strip of the shades with the numbers at its ends. */
export function drawKey(x, y, width, low, high, label) {
  const steps = 24;
  const strip = Array.from({ length: steps }, (_, i) =>
    draw("rect", {
      x: x + (i * width) / steps,
      y,
      width: width / steps + 0.5,
      height: 10,
      fill: shade(i / (steps - 1)),
    }),
  );
  return draw(
    "g",
    {},
    ...strip,
    text(x, y + 25, low, { size: 11.5, fill: colour("quiet") }),
    text(x + width, y + 25, high, { size: 11.5, anchor: "end", fill: colour("quiet") }),
    text(x + width / 2, y + 25, label, { size: 11.5, anchor: "middle", fill: colour("quiet") }),
  );
}

/** A line of text. */
export function text(x, y, content, { size = 13, anchor = "start", fill = null, weight = null, ...more } = {}) {
  return draw(
    "text",
    { x, y, "font-size": size, "text-anchor": anchor, fill, "font-weight": weight, ...more },
    `${content}`,
  );
}

/** Save a drawing as a file of SVG. */
export function saveSvg(svg, name) {
  saveFile(new Blob([writeSvg(svg).content], { type: "image/svg+xml" }), `${name}.svg`);
}

/** Save a drawing as a file of PNG, twice as large as drawn. */
export async function savePng(svg, name) {
  const { content, width, height } = writeSvg(svg);
  const address = URL.createObjectURL(new Blob([content], { type: "image/svg+xml" }));
  const image = new Image(width, height);
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 2 * width;
  canvas.height = 2 * height;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  saveFile(blob, `${name}.png`);
}

/** A drawing as a file, on the colour of the page and with a margin. */
function writeSvg(svg) {
  const copy = svg.cloneNode(true);
  const width = Math.ceil(svg.viewBox.baseVal.width) + 2 * MARGIN;
  const height = Math.ceil(svg.viewBox.baseVal.height) + 2 * MARGIN;
  copy.setAttribute("viewBox", `${-MARGIN} ${-MARGIN} ${width} ${height}`);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.removeAttribute("style");
  copy.prepend(draw("rect", { x: -MARGIN, y: -MARGIN, width, height, fill: colour("paper") }));
  const content = new XMLSerializer().serializeToString(copy).replace(/[\0-\x08\x0b\x0c\x0e-\x1f]/g, ""); // XML has none
  return { content, width, height };
}

/** Save rows as a file of CSV, the first row being the names; UTF-8 with a mark, which spreadsheets look for. */
export function saveCsv(rows, name) {
  const quote = (value) => (/[",\n\r]/.test(`${value}`) ? `"${`${value}`.replaceAll('"', '""')}"` : `${value}`);
  // a cell that begins like a formula would be run by a spreadsheet
  const safe = (value) => (typeof value === "string" && /^([=+@\t\r]|-(?!\d))/.test(value) ? `'${value}` : value);
  const lines = rows.map((row) => row.map((value) => quote(safe(value))).join(","));
  saveFile(new Blob([`\ufeff${lines.join("\r\n")}\r\n`], { type: "text/csv" }), `${name}.csv`);
}

function saveFile(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

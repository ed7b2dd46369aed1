// Tables sort by a click on a heading; long ones are searched, and shown a part at a time.
const source = document.getElementById("sorting").textContent;
const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
const { default: DataTable } = await import(address);
URL.revokeObjectURL(address);
DataTable.ext.errMode = "throw";
const inParts = [];
for (const table of document.querySelectorAll("table.sortable")) {
  const many = table.classList.contains("many") && table.tBodies[0].rows.length > 25;
  const made = new DataTable(table, {
    autoWidth: false,
    info: many,
    order: [],
    paging: many,
    pageLength: 25,
    searching: many,
  });
  if (many) inParts.push(made);
}
// On paper all rows are there.
addEventListener("beforeprint", () => inParts.forEach((table) => table.page.len(-1).draw()));
addEventListener("afterprint", () => inParts.forEach((table) => table.page.len(25).draw()));
document.documentElement.dataset.tables = "ready";

// Charts are as wide as the page; below them as many names beside one another as there is room for.
for (const holder of document.querySelectorAll("script.specification")) {
  const place = document.getElementById(holder.dataset.for);
  const specification = JSON.parse(holder.textContent);
  const width = place.clientWidth;
  specification.config.font = getComputedStyle(place).fontFamily;
  specification.config.legend.columns = Math.max(1, Math.floor((width - 110) / (7 * specification.usermeta.longest + 40)));
  specification.config.axis.labelLimit = width < 600 ? 130 : 260;
  specification.config.axisX = { tickCount: width < 600 ? 4 : 8 };
  await vegaEmbed(place, specification, {
    actions: { export: true, source: false, compiled: false, editor: false },
    ast: true,
    renderer: "svg",
  });
}
document.documentElement.dataset.charts = "ready";

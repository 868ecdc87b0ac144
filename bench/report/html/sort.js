// Sorts a table by the column whose heading is pressed: figures by value, the rest as text; missing cells last.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th"), table = button.closest("table"), body = table.tBodies[0];
    const figures = heading.classList.contains("figure"), column = heading.cellIndex;
    const ascending = heading.ariaSort ? heading.ariaSort === "descending" : !figures;
    const value = row => {
      const text = row.cells[column].textContent;
      return figures ? parseFloat(text.replaceAll(",", "")) : text;
    };
    const missing = key => key === "-" || Number.isNaN(key);
    const compare = (a, b) => figures ? a - b : a.localeCompare(b, "en", { numeric: true });
    const rows = [...body.rows].map(row => [value(row), row]);
    rows.sort(([a], [b]) => missing(a) - missing(b) || (missing(a) ? 0 : ascending ? compare(a, b) : compare(b, a)));
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    heading.ariaSort = ascending ? "ascending" : "descending";
    body.append(...rows.map(([, row]) => row));
  });
}

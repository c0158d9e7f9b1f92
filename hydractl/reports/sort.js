for (const table of document.querySelectorAll("table:not(.matrix)")) {
  const heads = [...table.tHead.rows[1].cells];
  const sort = (place) => {
    const head = heads[place], body = table.tBodies[0];
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[place].dataset.value ?? row.cells[place].textContent;
    const order = (a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const found = place === 0 ? x.localeCompare(y) : x - y;
      return down ? -found : found;
    };
    body.append(...[...body.rows].sort(order));
  };
  heads.forEach((head, place) => {
    head.addEventListener("click", () => sort(place));
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(place); });
  });
}

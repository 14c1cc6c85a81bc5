// A click on a heading sorts its table by that column, numbers by value and words by letter; another click reverses it.
for (const button of document.querySelectorAll("table.sortable th button")) {
  button.addEventListener("click", () => {
    const heading = button.parentElement, row = heading.parentElement, body = row.closest("table").tBodies[0];
    const column = [...row.children].indexOf(heading);
    const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const key = (tr) => tr.children[column].dataset.value ?? tr.children[column].textContent;
    const empty = (text) => text === "";
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (empty(x) || empty(y)) return empty(x) - empty(y);
      return sign * (heading.classList.contains("number") ? Number(x) - Number(y) : x.localeCompare(y));
    });
    body.append(...rows);
    for (const other of row.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  });
}

// What is folded on the screen is printed.
addEventListener("beforeprint", () => { for (const folded of document.querySelectorAll("details")) folded.open = true; });

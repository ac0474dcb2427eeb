"use strict";
// Shows the rows of the table behind the field whose names have the words that are typed.
for (const field of document.querySelectorAll("input.filter")) {
  const rows = field.nextElementSibling.querySelectorAll("tbody tr");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const name = row.firstElementChild.textContent.toLowerCase();
      row.hidden = !words.every((word) => name.includes(word));
    }
  });
}

//! The rows of the matrix (`injection-anchors.md` §4.2 of the project's research), in cells.

mod load;

use crate::cell::Cell;

/// All of them, in the order of the rows.
pub fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    cells.extend(load::cells());
    cells.sort_by_key(|cell| cell.row);
    cells
}

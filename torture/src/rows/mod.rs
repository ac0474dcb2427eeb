//! The rows of the matrix (`docs/attach-engine.md`) as cells. `docs/sources.md#inject` tells where
//! each comes from.

mod calls;
mod churn;
mod environments;
mod listener;
mod lives;
mod load;
mod product;
mod races;
mod runtimes;
mod starting;
mod states;

use crate::cell::Cell;

/// Returns all cells, in the order of the rows.
pub fn all(quick: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    cells.extend(load::cells());
    cells.extend(calls::cells());
    cells.extend(states::cells());
    cells.extend(listener::cells());
    cells.extend(environments::cells());
    cells.extend(lives::cells(quick));
    cells.extend(product::cells());
    cells.extend(races::cells());
    cells.extend(runtimes::cells());
    cells.extend(churn::cells());
    cells.extend(starting::cells());
    cells.sort_by_key(|cell| cell.row);
    cells
}

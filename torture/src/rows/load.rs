//! Rows 1, 2 and 17: targets that keep the allocator, the loader and the thread library busy.

use crate::cell::{Cell, slower};
use crate::kit::debian_library;
use crate::spec::{Spec, Want};
use std::time::Duration;

const JEMALLOC: &[&str] = &["libjemalloc.so.2"];
const TCMALLOC: &[&str] = &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"];

/// Returns the cells.
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for threads in [1, 8, 200] {
        for (allocator, names) in [
            ("glibc", &[][..]),
            ("jemalloc", JEMALLOC),
            ("tcmalloc", TCMALLOC),
        ] {
            let name = format!("{threads} threads in malloc and free, {allocator}; one parked");
            let cell = Cell::on(1, name, move |_| allocating(threads, true, names));
            cells.push(match threads {
                200 => cell.heavy(),
                _ => cell,
            });
        }
    }
    let none_parked = Cell::on(
        1,
        "8 threads in malloc and free, glibc; none parked",
        |_| allocating(8, false, &[]),
    )
    .want(Want::InOr(&["NoneParked", "StubBlocked"]))
    .heavy();
    cells.push(none_parked);
    cells.push(Cell::on(
        2,
        "dlopen and dlclose on 4 threads; one parked",
        |_| Ok(Spec::ours("dlopen", &["dlopen*3", "parked"]).unsteady()),
    ));
    cells.push(Cell::on(
        2,
        "dl_iterate_phdr on 4 threads; one parked",
        |_| Ok(Spec::ours("phdr", &["phdr*3", "parked"])),
    ));
    cells.push(Cell::on(2, "fork on 2 threads; one parked", |_| {
        Ok(Spec::ours("fork", &["fork", "parked"]))
    }));
    cells.push(Cell::on(2, "all of them, and malloc; one parked", |_| {
        Ok(Spec::ours("malloc", &["malloc", "dlopen", "phdr", "fork", "parked"]).unsteady())
    }));
    cells.push(Cell::on(
        17,
        "threads made and joined on 4 threads; one parked",
        |_| Ok(Spec::ours("churn", &["churn*3", "parked"]).unsteady()),
    ));
    // On an emulated processor, which is slower, they sleep longer. Otherwise that they wake up takes
    // more than all of its time.
    let nap = slower(Duration::from_millis(10)).as_millis();
    cells.push(Cell::on(
        17,
        format!("650 threads that sleep {nap} ms at a time"),
        move |_| {
            let words = ["nap*649", "+stacks:65536", &format!("+nap:{nap}")];
            Ok(Spec::ours("nap", &words))
        },
    ));
    cells.push(
        Cell::on(17, "a thread of the program named as ours", |_| {
            Ok(Spec::ours("stdin", &["parked", "+comm:midair-worker"]))
        })
        .want(Want::InOr(&["Busy"]))
        .ours_only(),
    );
    cells.push(
        Cell::on(17, "a thread of the program named as the listener", |_| {
            Ok(Spec::ours("stdin", &["parked", "+comm:rocp-bg-attach"]))
        })
        .ours_only(),
    );
    cells
}

/// Returns a target whose threads allocate, the first one among them.
fn allocating(threads: u32, parked: bool, preload: &[&str]) -> Result<Spec, String> {
    let more = format!("malloc*{}", threads - 1);
    let mut words = Vec::new();
    if threads > 1 {
        words.push(more.as_str());
    }
    if parked {
        words.push("parked");
    }
    let spec = Spec::ours("malloc", &words);
    if preload.is_empty() {
        return Ok(spec);
    }
    let mut found = preload.iter().filter_map(|name| debian_library(name));
    let Some(library) = found.next() else {
        return Err(format!("{} is not installed", preload[0]));
    };
    Ok(spec.env("LD_PRELOAD", library.display().to_string()))
}

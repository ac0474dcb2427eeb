//! `cargo xtask circles`: finds import circles between the modules of a crate.
//!
//! A module is a file. It has an edge to every other file of its crate that it uses, by a `use` or
//! by a path in its code that starts with `crate`, `self`, `super` or the name of one of its child
//! modules. A name that a module re-exports counts as what it stands for. Comments, strings and
//! code for tests are not counted. `mod child;` is not counted, either, and neither is a re-export
//! whose name the re-exporting file does not use itself. Code that a build script generates is not
//! seen.
//!
//! Modules that all reach one another form a circle, and none of them can be understood or tested
//! without the others. Small circles are normal in Rust (a parent and its children). A circle of
//! more than [`LIMIT`] modules is a failure.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use midair_dev_kit::run::{At, Outcome, crate_directories, crate_directory, failed};
use source::Source;

/// The greatest number of modules in a circle.
const LIMIT: usize = 4;

/// Crates with larger circles, and how many modules the largest has. A row goes when its circle does.
const KNOWN: &[(&str, usize)] = &[
    ("cli", 5),
    ("compute", 6),
    ("live", 5),
    ("record", 10),
    ("session", 7),
    ("settings", 13),
    ("tool-call", 5),
    ("why", 6),
];

/// The path of a module below its crate's root. The root itself is the empty path.
type Module = Vec<String>;

/// The modules that each module uses.
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Runs `cargo xtask circles [CRATE ...]`.
pub fn circles_task(words: &[String]) -> Outcome<()> {
    let named: Vec<&str> = words.iter().map(String::as_str).collect();
    let directories = match named.is_empty() {
        true => crate_directories()?,
        false => named
            .into_iter()
            .map(crate_directory)
            .collect::<Outcome<_>>()?,
    };
    let mut bad = Vec::new();
    for directory in &directories {
        let name = directory.file_name().and_then(|name| name.to_str());
        let name = name.unwrap_or_default();
        let known = KNOWN.iter().find(|(known, _)| *known == name);
        let limit = known.map_or(LIMIT, |(_, modules)| *modules);
        let graph = graph(&sources(&directory.join("src"))?);
        let circles = circles(&graph);
        let largest = circles.iter().map(Vec::len).max().unwrap_or(0);
        println!(
            "{name}: {} modules, {} circles, {largest} modules in the largest",
            graph.len(),
            circles.len(),
        );
        for circle in &circles {
            println!("    {}", listed(circle));
            if circle.len() > limit {
                bad.push(format!("{name}: {}", listed(circle)));
                print_edges(&graph, circle);
            }
        }
    }
    if bad.is_empty() {
        return Ok(());
    }
    failed(format!(
        "import circles of more modules than {LIMIT}, or than the crate's known ones: {}",
        bad.join("; ")
    ))
}

fn print_edges(graph: &Graph, circle: &[Module]) {
    for module in circle {
        let uses = graph.get(module).into_iter().flatten();
        let inside: Vec<Module> = uses.filter(|to| circle.contains(to)).cloned().collect();
        println!("        {} uses {}", name_of(module), listed(&inside));
    }
}

fn name_of(module: &Module) -> String {
    if module.is_empty() {
        "the crate's root".to_owned()
    } else {
        module.join("::")
    }
}

fn listed(modules: &[Module]) -> String {
    let names: Vec<String> = modules.iter().map(name_of).collect();
    names.join(", ")
}

/// Reads the sources below a crate's `src`, by module.
fn sources(src: &Path) -> Outcome<BTreeMap<Module, Source>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![(src.to_path_buf(), Module::new())];
    while let Some((directory, below)) = directories.pop() {
        for entry in fs::read_dir(&directory).at("cannot read", &directory)? {
            let path = entry.at("cannot read", &directory)?.path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let mut module = below.clone();
            if path.is_dir() {
                module.push(stem.into_owned());
                directories.push((path, module));
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let is_root = below.is_empty() && (stem == "lib" || stem == "main");
            if !is_root && stem != "mod" {
                module.push(stem.into_owned());
            }
            let text = fs::read_to_string(&path).at("cannot read", &path)?;
            found.insert(module, Source::parse(&text));
        }
    }
    Ok(found)
}

/// Returns the import graph of a crate's modules, without those that only tests have.
fn graph(sources: &BTreeMap<Module, Source>) -> Graph {
    let for_tests: Vec<Module> = sources
        .iter()
        .flat_map(|(module, source)| {
            let children = source.test_modules.iter();
            children.map(move |child| [module.as_slice(), std::slice::from_ref(child)].concat())
        })
        .collect();
    let is_for_tests = |module: &Module| for_tests.iter().any(|tests| module.starts_with(tests));
    let kept: BTreeMap<&Module, &Source> = sources
        .iter()
        .filter(|(module, _)| !is_for_tests(module))
        .collect();
    let mut graph = Graph::new();
    for (module, source) in &kept {
        let mut uses = BTreeSet::new();
        let unused_names = source.reexports.iter().filter(|it| !it.used);
        let mut left_out: Vec<&Vec<String>> = unused_names.map(|it| &it.path).collect();
        for path in &source.paths {
            // The paths contain each re-export once. That one is left out here if the file does not
            // use the name itself.
            if let Some(at) = left_out.iter().position(|other| *other == path) {
                left_out.swap_remove(at);
                continue;
            }
            uses.extend(resolve(&kept, module, path, 8));
        }
        uses.remove(*module);
        graph.insert((*module).clone(), uses);
    }
    graph
}

/// Returns the module to which a path in `module` leads, or `None` when it leads out of the crate.
/// `steps` is how many re-exports may be followed.
fn resolve(
    sources: &BTreeMap<&Module, &Source>,
    module: &Module,
    path: &[String],
    steps: usize,
) -> Option<Module> {
    let mut at = module.clone();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => {
            at.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {}
        first => {
            // It is a child module, or else a name from elsewhere.
            let child: Module = [module.as_slice(), &[first.to_owned()]].concat();
            if !sources.contains_key(&child) {
                return None;
            }
        }
    }
    while rest.first().is_some_and(|segment| segment == "super") {
        at.pop()?;
        rest = &rest[1..];
    }
    while let Some(segment) = rest.first() {
        let child: Module = [at.as_slice(), std::slice::from_ref(segment)].concat();
        if !sources.contains_key(&child) {
            break;
        }
        at = child;
        rest = &rest[1..];
    }
    if let (Some(name), Some(source)) = (rest.first(), sources.get(&at))
        && let Some(reexport) = source.reexports.iter().find(|it| it.name == *name)
        && steps > 0
    {
        let stands_for = resolve(sources, &at, &reexport.path, steps - 1);
        return stands_for.or(Some(at));
    }
    Some(at)
}

/// Returns the circles: sets of at least two modules that all reach one another.
fn circles(graph: &Graph) -> Vec<Vec<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = graph
        .keys()
        .map(|module| (module, reachable(graph, module)))
        .collect();
    let mut seen: BTreeSet<&Module> = BTreeSet::new();
    let mut found = Vec::new();
    for (module, from_here) in &reached {
        if seen.contains(module) {
            continue;
        }
        let circle: Vec<Module> = from_here
            .iter()
            .filter(|other| {
                reached
                    .get(*other)
                    .is_some_and(|back| back.contains(module))
            })
            .map(|other| (*other).clone())
            .collect();
        seen.extend(from_here.iter().filter(|other| circle.contains(other)));
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found
}

/// Returns what a module reaches in one step or more.
fn reachable<'a>(graph: &'a Graph, from: &Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Module> = graph.get(from).into_iter().flatten().collect();
    while let Some(module) = open.pop() {
        if found.insert(module) {
            open.extend(graph.get(module).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Module {
        path.split("::")
            .filter(|segment| !segment.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn graph_of(files: &[(&str, &str)]) -> Graph {
        let sources = files.iter();
        graph(
            &sources
                .map(|(path, text)| (module(path), Source::parse(text)))
                .collect(),
        )
    }

    fn uses(graph: &Graph, path: &str) -> Vec<String> {
        graph[&module(path)].iter().map(name_of).collect()
    }

    #[test]
    fn every_way_to_name_a_module_is_an_edge() {
        let graph = graph_of(&[
            ("", "mod a; mod b; mod c; pub mod d; mod e;"),
            ("a", "use crate::{b::{self, B}, c as sea};"),
            ("b", "fn f() -> crate::c::C { super::d::g() }"),
            ("c", "mod inner { use super::super::d; }"),
            (
                "d",
                "mod one; mod two; use self::one::X; fn f() { two::g() }",
            ),
            ("d::one", "use super::super::e::*;"),
            ("d::two", ""),
            ("e", "use std::fmt; use midair_abi::c;"),
        ]);
        assert_eq!(uses(&graph, ""), [""; 0]);
        assert_eq!(uses(&graph, "a"), ["b", "c"]);
        assert_eq!(uses(&graph, "b"), ["c", "d"]);
        assert_eq!(uses(&graph, "c"), ["d"]);
        assert_eq!(uses(&graph, "d"), ["d::one", "d::two"]);
        assert_eq!(uses(&graph, "d::one"), ["e"]);
        assert_eq!(uses(&graph, "e"), [""; 0]);
        assert!(circles(&graph).is_empty());
    }

    #[test]
    fn tests_and_their_files_are_left_out() {
        let graph = graph_of(&[
            ("", "mod a; mod b; #[cfg(test)] mod tests;"),
            (
                "a",
                "#[cfg(test)] use crate::b::B; #[cfg(test)] mod tests { use crate::b; fn f() { { } } } fn g() {}",
            ),
            (
                "b",
                "#[cfg(test)] #[derive(Debug)] struct T(crate::a::A); use crate::a;",
            ),
            ("tests", "use super::*; use crate::a;"),
        ]);
        assert_eq!(uses(&graph, "a"), [""; 0]);
        assert_eq!(uses(&graph, "b"), ["a"]);
        assert!(!graph.contains_key(&module("tests")));
    }

    #[test]
    fn a_reexport_counts_where_its_name_is_used() {
        let graph = graph_of(&[
            ("", "mod a; mod b; mod c;"),
            (
                "a",
                "mod x; mod y; pub use x::X; pub(crate) use y::{Y as Z, f}; fn g() { f() }",
            ),
            ("a::x", "use super::Z;"),
            ("a::y", ""),
            ("b", "fn g(it: crate::a::X) {}"),
            ("c", "use crate::a::g;"),
        ]);
        assert_eq!(uses(&graph, "a"), ["a::y"]);
        assert_eq!(uses(&graph, "a::x"), ["a::y"]);
        assert_eq!(uses(&graph, "b"), ["a::x"]);
        assert_eq!(uses(&graph, "c"), ["a"]);
    }

    #[test]
    fn circles_are_sets_that_reach_one_another() {
        let graph = graph_of(&[
            ("", "mod a; mod b; mod c; mod d; mod e;"),
            ("a", "use crate::b;"),
            ("b", "use crate::c;"),
            ("c", "use crate::{a, d};"),
            ("d", "use crate::e;"),
            ("e", "use crate::d::D;"),
        ]);
        let found = circles(&graph);
        let names: Vec<String> = found.iter().map(|circle| listed(circle)).collect();
        assert_eq!(names, ["a, b, c", "d, e"]);
    }
}

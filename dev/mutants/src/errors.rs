//! Which mutants are to blame for the errors of a build.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

/// Where the mutants of a file are, as `dev/mutants/switches` writes it. All places are bytes.
#[derive(Debug, Default, Deserialize)]
pub struct Places {
    /// Each mutant: number, start, end.
    pub arms: Vec<(u32, usize, usize)>,
    /// Each place with mutants: their numbers, start, end.
    pub sites: Vec<(Vec<u32>, usize, usize)>,
}

/// What a build's errors say of the mutants.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// These do not compile by themselves.
    pub unviable: BTreeSet<u32>,
    /// The switch of these does not compile.
    pub without: BTreeSet<u32>,
    /// Errors for which no mutant could be found.
    pub unexplained: Vec<String>,
}

/// A range of an error.
struct Range {
    file: String,
    begin: usize,
    end: usize,
}

/// Reads a build's errors. `text` returns a changed file's text, and `is_arm` says whether a mutant
/// deletes an arm of a `match`.
pub fn blame(
    errors: &[Value],
    places: &BTreeMap<String, Places>,
    text: impl Fn(&str) -> String,
    is_arm: impl Fn(u32) -> bool,
) -> Blame {
    let mut blame = Blame::default();
    for error in errors {
        let ranges = ranges(error);
        if ranges.is_empty() {
            // A summary, such as "aborting due to 3 errors".
            continue;
        }
        let explained = by_begin(&ranges, places, &mut blame)
            || by_extent(&ranges, places, &mut blame)
            || by_line(&ranges, places, &text, &mut blame)
            || by_match(error, &ranges, places, &text, &is_arm, &mut blame);
        if !explained {
            let said = error["rendered"].as_str().unwrap_or_default();
            blame.unexplained.push(said.to_owned());
        }
    }
    let unviable = &blame.unviable;
    blame.without.retain(|number| !unviable.contains(number));
    blame
}

/// The ranges that an error names, its main one first.
fn ranges(error: &Value) -> Vec<Range> {
    let spans = |value: &Value| value["spans"].as_array().cloned().unwrap_or_default();
    let mut all = spans(error);
    all.sort_by_key(|span| span["is_primary"] != true);
    for child in error["children"].as_array().into_iter().flatten() {
        all.extend(spans(child));
    }
    let range = |mut span: Value| {
        while !span["expansion"].is_null() {
            span = span["expansion"]["span"].clone();
        }
        Some(Range {
            file: span["file_name"].as_str()?.to_owned(),
            begin: span["byte_start"].as_u64()? as usize,
            end: span["byte_end"].as_u64()? as usize,
        })
    };
    all.into_iter().filter_map(range).collect()
}

/// The innermost mutant or place in which a range starts.
fn by_begin(ranges: &[Range], places: &BTreeMap<String, Places>, blame: &mut Blame) -> bool {
    for range in ranges {
        let Some(places) = places.get(&range.file) else {
            continue;
        };
        let holds = |begin: usize, end: usize| begin <= range.begin && range.begin < end;
        let arms = places.arms.iter().filter(|arm| holds(arm.1, arm.2));
        let sites = places.sites.iter().filter(|site| holds(site.1, site.2));
        let arm = arms.min_by_key(|arm| arm.2 - arm.1);
        let site = sites.min_by_key(|site| site.2 - site.1);
        match (arm, site) {
            (Some(arm), site) if site.is_none_or(|site| arm.2 - arm.1 < site.2 - site.1) => {
                blame.unviable.insert(arm.0);
            }
            (_, Some(site)) => blame.without.extend(&site.0),
            _ => continue,
        }
        return true;
    }
    false
}

/// All places inside a range.
fn by_extent(ranges: &[Range], places: &BTreeMap<String, Places>, blame: &mut Blame) -> bool {
    among(ranges, places, blame, |range, begin, end| {
        range.begin <= begin && end <= range.end
    })
}

/// All places on the lines of a range.
fn by_line(
    ranges: &[Range],
    places: &BTreeMap<String, Places>,
    text: &impl Fn(&str) -> String,
    blame: &mut Blame,
) -> bool {
    among(ranges, places, blame, |range, begin, end| {
        let text = text(&range.file);
        let line = text
            .get(..range.begin)
            .and_then(|before| before.rfind('\n'));
        let behind = text.get(range.end..).and_then(|behind| behind.find('\n'));
        begin < behind.map_or(text.len(), |at| range.end + at) && end > line.unwrap_or(0)
    })
}

fn among(
    ranges: &[Range],
    places: &BTreeMap<String, Places>,
    blame: &mut Blame,
    wanted: impl Fn(&Range, usize, usize) -> bool,
) -> bool {
    for range in ranges {
        let sites = places.get(&range.file).map(|it| it.sites.as_slice());
        let sites = sites.into_iter().flatten();
        let found: Vec<_> = sites.filter(|it| wanted(range, it.1, it.2)).collect();
        if !found.is_empty() {
            blame.without.extend(found.iter().flat_map(|it| &it.0));
            return true;
        }
    }
    false
}

/// A `match` that does not cover everything, because one of its arms has become conditional.
fn by_match(
    error: &Value,
    ranges: &[Range],
    places: &BTreeMap<String, Places>,
    text: &impl Fn(&str) -> String,
    is_arm: &impl Fn(u32) -> bool,
    blame: &mut Blame,
) -> bool {
    if error["code"]["code"] != "E0004" {
        return false;
    }
    let Some((range, places)) = ranges
        .first()
        .and_then(|range| Some((range, places.get(&range.file)?)))
    else {
        return false;
    };
    let text = text(&range.file);
    let mut depth = 0_i32;
    let mut extent = None;
    for (at, byte) in text.bytes().enumerate().skip(range.end) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        let begin = extent.map_or(at, |(begin, _)| begin);
        extent = Some((begin, at));
        if depth <= 0 {
            break;
        }
    }
    let Some((begin, end)) = extent else {
        return false;
    };
    let arms = places.sites.iter().filter(|site| {
        begin < site.1 && site.1 < end && site.0.iter().all(|number| is_arm(*number))
    });
    let before = blame.unviable.len();
    blame.unviable.extend(arms.flat_map(|site| &site.0));
    blame.unviable.len() > before
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(begin: usize, end: usize) -> Value {
        let span = json!({"file_name": "a.rs", "byte_start": begin, "byte_end": end,
            "is_primary": true});
        json!({"spans": [span], "children": [], "rendered": "no", "code": {"code": "E0004"}})
    }

    #[test]
    fn the_innermost_is_to_blame() {
        let places = Places {
            arms: vec![(1, 20, 30), (2, 40, 50)],
            sites: vec![(vec![1, 2], 10, 60), (vec![3], 43, 47)],
        };
        let places = BTreeMap::from([("a.rs".to_owned(), places)]);
        let text = "x".repeat(9) + "\n" + &"y".repeat(60) + "\n" + "match z { a => {} }";
        let of = |begin: usize, end: usize| {
            blame(&[error(begin, end)], &places, |_| text.clone(), |_| true)
        };
        let set = |numbers: &[u32]| numbers.iter().copied().collect::<BTreeSet<u32>>();
        assert_eq!(of(25, 26).unviable, set(&[1]));
        assert_eq!(of(45, 46).without, set(&[3]));
        assert_eq!(of(35, 36).without, set(&[1, 2]));
        // Around both, and on their line.
        assert_eq!(of(5, 65).without, set(&[1, 2, 3]));
        assert_eq!(of(62, 63).without, set(&[1, 2, 3]));
        assert_eq!(of(80, 81).unexplained, ["no"]);
        let summary = json!({"spans": [], "children": []});
        let none = blame(&[summary], &places, |_| String::new(), |_| true);
        assert_eq!(none, Blame::default());
    }

    #[test]
    fn an_arm_is_to_blame_for_its_match() {
        let text = "match a { 1 if x => {} _ => {} } 2";
        let places = Places {
            arms: vec![(7, 15, 16)],
            sites: vec![(vec![7], 12, 16), (vec![8], 33, 34)],
        };
        let places = BTreeMap::from([("a.rs".to_owned(), places)]);
        let mut it = Blame::default();
        let ranges = [Range {
            file: "a.rs".to_owned(),
            begin: 6,
            end: 7,
        }];
        let text = |_: &str| text.to_owned();
        assert!(by_match(
            &error(6, 7),
            &ranges,
            &places,
            &text,
            &|_| true,
            &mut it
        ));
        assert_eq!(it.unviable, BTreeSet::from([7]));
    }
}

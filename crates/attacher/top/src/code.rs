//! Names of lines of code in few columns.

use midair_output::distinct_labels;
use std::collections::BTreeSet;

/// Returns names such as `job/train.py:31 Net.forward` within this many columns. The file's name and the
/// number of the line are the last to go.
pub(crate) fn fitted(names: &[&str], width: usize, unicode: bool) -> Vec<String> {
    let short: Vec<String> = names.iter().map(|name| one(name, width, unicode)).collect();
    let different: BTreeSet<&String> = short.iter().collect();
    match different.len() == names.len() {
        true => short,
        false => distinct_labels(names, width, unicode),
    }
}

fn one(name: &str, width: usize, unicode: bool) -> String {
    let fits = |text: &str| text.chars().count() <= width;
    let place = name.split(' ').next().unwrap_or(name);
    let directory = place.rfind('/').map_or(0, |at| at + 1);
    let shorter = name.get(directory..).unwrap_or(name);
    if let Some(text) = [name, shorter].into_iter().find(|text| fits(text)) {
        return text.to_owned();
    }
    let dots = if unicode { "…" } else { "..." };
    let room = width.saturating_sub(dots.chars().count());
    let place = place.get(directory..).unwrap_or(place);
    match place.chars().count() <= room {
        true => shorter.chars().take(room).chain(dots.chars()).collect(),
        false => {
            let gone = place.chars().count().saturating_sub(room);
            dots.chars().chain(place.chars().skip(gone)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_and_line_are_the_last_to_go() {
        let name = "job/models.py:1207 Transformer.block";
        for (width, wanted) in [
            (36, name),
            (35, "models.py:1207 Transformer.block"),
            (32, "models.py:1207 Transformer.block"),
            (31, "models.py:1207 Transformer.b..."),
            (20, "models.py:1207 Tr..."),
            (17, "models.py:1207..."),
            (12, "...s.py:1207"),
        ] {
            assert_eq!(one(name, width, false), wanted);
        }
        assert_eq!(one(name, 20, true), "models.py:1207 Tran…");
        assert_eq!(
            one("(launched outside of Python)", 20, false),
            "(launched outside..."
        );
    }

    #[test]
    fn different_lines_stay_different() {
        let names = [
            "one/serve.py:7 main_of_the_first",
            "two/serve.py:7 main_of_the_second",
        ];
        let shown = fitted(&names, 20, true);
        assert_ne!(shown[0], shown[1]);
        assert!(
            shown.iter().all(|name| name.chars().count() <= 20),
            "{shown:?}"
        );
    }
}

//! The reference page, generated from the table of options.

use crate::options::{Category, Front, Opt, Shape, options};

/// How an option and its words look: `-f, --output-format csv|json...`.
pub fn spelling(option: &Opt) -> String {
    let mut text = option
        .short
        .map(|short| format!("-{short}, "))
        .unwrap_or_default();
    text.push_str(&format!("--{}", option.long));
    for alias in option.aliases {
        text.push_str(&format!(", --{alias}"));
    }
    match option.shape {
        Shape::Flag => {}
        Shape::Boolean if option.all.is_some() => text.push_str(" [true|false|all]"),
        Shape::Boolean => text.push_str(" [true|false]"),
        Shape::Text(name) | Shape::Number { name, .. } => text.push_str(&format!(" {name}")),
        Shape::Duration => text.push_str(" TIME"),
        Shape::OneOf(words) => text.push_str(&format!(" {}", words.join("|"))),
        Shape::Each(name) => text.push_str(&format!(" {name}")),
        Shape::Texts(name) | Shape::Groups(name) => text.push_str(&format!(" {name}...")),
        Shape::AnyOf(words) => text.push_str(&format!(" [{}...]", words.join("|"))),
        Shape::SomeOf(words) => text.push_str(&format!(" {}...", words.join("|"))),
    }
    text
}

/// The page, in Markdown. `cargo xtask docs` writes it to docs/options.md.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Options of rocprofv3 and midair attach\n\n\
         Made by `cargo xtask docs` from the table in `crates/between/settings/src/options`: do not edit.\n\
         \"Not yet\" marks options that are known and refused by name.\n",
    );
    for category in Category::ALL {
        page.push_str(&format!(
            "\n## {}\n\n| option | what it does | sets |\n|---|---|---|\n",
            category.heading()
        ));
        for option in options().filter(|option| option.category == *category && !option.hidden) {
            let cell = |text: &str| text.replace('|', "\\|");
            let front = match option.front {
                Front::Both => "",
                Front::Rocprofv3 => " (rocprofv3)",
                Front::Midair => " (midair)",
            };
            let mut what = cell(option.help);
            if !option.long_help.is_empty() {
                what = format!("{what}. {}", cell(option.long_help));
            }
            if !option.is_built() {
                what = format!("*Not yet.* {what}");
            }
            if !option.later_words.is_empty() {
                what = format!("{what} Not yet: {}.", option.later_words.join(", "));
            }
            let sets: Vec<String> = option
                .variables()
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            let members: Vec<String> = option
                .expands
                .iter()
                .map(|name| format!("`--{name}`"))
                .collect();
            let sets = [sets, members].concat().join(", ");
            page.push_str(&format!(
                "| `{}`{front} | {what} | {sets} |\n",
                cell(&spelling(option))
            ));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spelling_has_all_names_and_what_the_option_takes() {
        for (long, wanted) in [
            ("json", "--json"),
            ("pid", "-p, --pid, --attach PID"),
            ("kernel-trace", "--kernel-trace [true|false]"),
            ("cuda-trace", "--cuda-trace [true|false|all]"),
            ("truncate-kernels", "-T, --truncate-kernels [true|false]"),
            ("name", "--name REGEX"),
            ("duration", "--duration TIME"),
            ("replay-mode", "--replay-mode kernel|application"),
            ("trigger", "--trigger WHEN"),
            ("preload", "--preload LIB..."),
            ("pmc", "--pmc COUNTER..."),
            (
                "ompt-trace",
                "--ompt-trace [all|thread|parallel|task|sync|mutex|target|device|error...]",
            ),
        ] {
            let option = crate::options::option(long).unwrap();
            assert_eq!(spelling(option), wanted);
        }
    }

    #[test]
    fn the_page_has_all_headings_in_their_order() {
        let page = markdown();
        let headings: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        assert_eq!(
            headings,
            [
                "Attaching",
                "Tracing, several at once",
                "Tracing",
                "Output",
                "Summaries and names",
                "Filters",
                "Counters and sampling",
                "Perfetto",
                "Thread trace",
                "Advanced"
            ]
        );
    }

    #[test]
    fn every_shown_option_is_on_the_page_once() {
        let page = markdown();
        for option in options().filter(|option| !option.hidden) {
            let row = format!("| `{}`", spelling(option).replace('|', "\\|"));
            assert_eq!(page.matches(&row).count(), 1, "{row}");
        }
        let row = "| Record calls of the HIP runtime and compiler | `--hip-compiler-trace`, `--hip-runtime-trace` |";
        assert!(page.contains(row));
        assert!(!page.contains("--readlink"));
    }
}

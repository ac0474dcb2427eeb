//! The difference of two recordings as a flame graph: one page for a browser, as the format `html`
//! ([`crate::formats::html`]), with the same policy and the same care for texts.

use crate::formats::html::Escaped;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;

const STYLE: &str = include_str!("difference/page.css");
const SCRIPT: &str = include_str!("difference/page.js");
const BODY: &str = include_str!("difference/page.html");
/// SHA-256 of [`STYLE`] and [`SCRIPT`] in base 64. A test compares them, and says what they should be.
const STYLE_DIGEST: &str = "w8BDYJiLZjcadKaAB6ESMNOf/wkXWx6TwAZK6SpPxM4=";
const SCRIPT_DIGEST: &str = "NrrLHIaiq/7rI0lFkim5uzfP0gTG7hWMEcIyWOW6rjk=";

/// The most stacks of the page; those with the most time are there.
const MOST_STACKS: usize = 20_000;
/// Numbers beyond this are not exact in a browser.
const MOST_EXACT: u64 = (1 << 53) - 1;

/// Two recordings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// The names of the recordings.
    pub names: [String; 2],
    /// The GPU's nanoseconds before and after, by stack: the outermost frame first, then the work.
    pub stacks: BTreeMap<Vec<String>, [u64; 2]>,
    /// Whether shares are compared rather than times.
    pub is_normalized: bool,
}

impl Difference {
    /// Returns the page.
    pub fn page(&self) -> String {
        let mut out = crate::formats::html::start(SCRIPT_DIGEST, (STYLE, STYLE_DIGEST), BODY);
        let mut data = Vec::new();
        // A vector takes everything.
        let _ = write!(Escaped(&mut data), "{}", self.data());
        out.push_str(&String::from_utf8_lossy(&data));
        out.push_str("</script>\n<script>");
        out.push_str(SCRIPT);
        out.push_str("</script>\n</body>\n</html>\n");
        out
    }

    fn data(&self) -> Value {
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut frames: Vec<&str> = Vec::new();
        let mut all: Vec<(&Vec<String>, [u64; 2])> = self
            .stacks
            .iter()
            .map(|(path, times)| (path, times.map(|time| time.min(MOST_EXACT))))
            .collect();
        all.sort_by_key(|(_, [before, after])| std::cmp::Reverse(before.saturating_add(*after)));
        all.truncate(MOST_STACKS);
        let mut stacks: Vec<Value> = Vec::new();
        for (path, times) in all {
            let path = path.iter().map(|name| {
                *places.entry(name).or_insert_with(|| {
                    frames.push(name);
                    frames.len() - 1
                })
            });
            stacks.push(json!([times, path.collect::<Vec<_>>()]));
        }
        let [before, after] = &self.names;
        json!({
            "before": before,
            "after": after,
            "normalized": self.is_normalized,
            "frames": frames,
            "stacks": stacks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_no_block_and_numbers_are_by_stack() {
        let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let difference = Difference {
            names: ["a</script>".to_owned(), "b".to_owned()],
            stacks: BTreeMap::from([
                (path(&["main", "gemm"]), [10, u64::MAX]),
                (path(&["main", "</script>"]), [5, 0]),
            ]),
            is_normalized: true,
        };
        let page = difference.page();
        assert_eq!(page.matches("</script>").count(), 2);
        let data = page.split("id=\"data\">").nth(1).unwrap();
        let data = data.split("</script>").next().unwrap();
        let wanted = json!({
            "before": "a</script>",
            "after": "b",
            "normalized": true,
            "frames": ["main", "gemm", "</script>"],
            "stacks": [[[10, MOST_EXACT], [0, 1]], [[5, 0], [0, 2]]],
        });
        assert_eq!(serde_json::from_str::<Value>(data).unwrap(), wanted);
    }
}

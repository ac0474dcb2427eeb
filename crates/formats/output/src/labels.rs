//! Shortens texts to a width so that no two of them look alike. What they have in common is left
//! out first.

use std::collections::{BTreeSet, HashMap};

use midair_failure::plain;

/// How many characters are shown before the first one that differs, to help the eye.
const LEAD: usize = 6;

/// The most rounds of adding places at which texts differ that still look alike.
const ROUNDS: usize = 8;

/// Returns each text in at most `width` characters, without control characters. A text that is too
/// long is cut in the middle. It shows its start, and the place where it first differs from the
/// others with the same start. Different texts stay different, unless the width leaves no room
/// for that (under 12).
pub fn distinct_labels<S: AsRef<str>>(texts: &[S], width: usize, unicode: bool) -> Vec<String> {
    let whole: Vec<Vec<char>> = texts.iter().map(|text| clean(text.as_ref())).collect();
    let cut = Cut {
        width,
        ellipsis: if unicode { "…" } else { "..." },
    };
    let mut shown: Vec<String> = whole.iter().map(|text| text.iter().collect()).collect();
    let mut families: HashMap<&[char], Vec<usize>> = HashMap::new();
    for (at, text) in whole.iter().enumerate() {
        if text.len() > width {
            families.entry(&text[..cut.head()]).or_default().push(at);
        }
    }
    for family in families.into_values() {
        match family[..] {
            [only] => shown[only] = cut.in_the_middle(&whole[only]),
            _ => cut.where_they_differ(&whole, &family, &mut shown),
        }
    }
    number_what_is_alike(&whole, &mut shown, width);
    shown
}

fn clean(text: &str) -> Vec<char> {
    let shown = |c: char| if plain::is_obeyed(c) { '?' } else { c };
    text.chars().map(shown).collect()
}

struct Cut {
    width: usize,
    ellipsis: &'static str,
}

impl Cut {
    /// Returns how many characters of the start are always shown.
    fn head(&self) -> usize {
        self.width.saturating_mul(2) / 5
    }

    /// Returns how many characters an ellipsis takes.
    fn dots(&self) -> usize {
        self.ellipsis.chars().count().min(self.width)
    }

    fn in_the_middle(&self, text: &[char]) -> String {
        self.joined(&text[..self.head()], &text[text.len() - self.room()..])
    }

    fn joined(&self, head: &[char], rest: &[char]) -> String {
        let dots = self.ellipsis.chars().take(self.dots());
        let text = head.iter().copied().chain(dots);
        text.chain(rest.iter().copied()).take(self.width).collect()
    }

    /// Shortens a family of texts by showing where they differ first. Those that still look alike
    /// also show where they differ from each other, until none look alike.
    fn where_they_differ(&self, whole: &[Vec<char>], family: &[usize], shown: &mut [String]) {
        let first = family.first().copied().unwrap_or(0);
        let begin_alike = |at: &usize| in_common(&whole[first], &whole[*at]);
        let common = family.iter().map(begin_alike).min().unwrap_or(0);
        let longest = family.iter().map(|at| whole[*at].len()).max().unwrap_or(0);
        let mut places: HashMap<usize, BTreeSet<usize>> = family
            .iter()
            .map(|at| (*at, BTreeSet::from([common])))
            .collect();
        for _ in 0..ROUNDS {
            let mut alike: HashMap<String, Vec<usize>> = HashMap::new();
            for at in family {
                let text = self.at(&whole[*at], &places[at], longest);
                shown[*at].clone_from(&text);
                alike.entry(text).or_default().push(*at);
            }
            let mut has_more = false;
            for mut group in alike.into_values() {
                // In a sorted list, neighbours have most in common.
                group.sort_by_key(|at| &whole[*at]);
                for pair in group
                    .windows(2)
                    .filter(|pair| whole[pair[0]] != whole[pair[1]])
                {
                    let place = in_common(&whole[pair[0]], &whole[pair[1]]);
                    for at in pair {
                        has_more |= places.entry(*at).or_default().insert(place);
                    }
                }
            }
            if !has_more {
                return;
            }
        }
    }

    /// Returns how many characters are left behind the start and an ellipsis.
    fn room(&self) -> usize {
        self.width.saturating_sub(self.head() + self.dots())
    }

    /// Shortens a text to its start and the surroundings of each place. The places are the same
    /// for all texts of a group, since the same words from different places would look alike.
    /// `longest` is the length of the group's longest text.
    fn at(&self, text: &[char], places: &BTreeSet<usize>, longest: usize) -> String {
        let dots = self.dots();
        // An ellipsis stands before each part, and behind the last one.
        let room = self.room().saturating_sub(places.len() * dots);
        let each = room / places.len().max(1);
        let lead = LEAD.min(each / 2);
        let mut cut: Vec<char> = text[..self.head()].to_vec();
        let mut end = self.head();
        for (number, place) in places.iter().enumerate() {
            let mut start = place.saturating_sub(lead);
            if number + 1 == places.len() {
                // Where all texts end within the room, the room is filled.
                start =
                    start.min(longest.saturating_sub(self.width.saturating_sub(cut.len() + dots)));
            }
            if start > end + dots {
                cut.extend(self.ellipsis.chars().take(dots));
            } else {
                start = end;
            }
            end = match number + 1 == places.len() {
                true => text.len(),
                false => (place + each - lead).clamp(start, text.len()),
            };
            cut.extend(&text[start.min(end)..end]);
        }
        if cut.len() > self.width {
            cut.truncate(self.width.saturating_sub(dots));
            cut.extend(self.ellipsis.chars().take(dots));
        }
        cut.into_iter().collect()
    }
}

/// Returns with how many equal characters both texts start.
fn in_common(one: &[char], other: &[char]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Makes different texts that look alike end in `~2`, `~3` and so on.
fn number_what_is_alike(whole: &[Vec<char>], shown: &mut [String], width: usize) {
    let mut seen: HashMap<String, Vec<usize>> = HashMap::new();
    for at in 0..shown.len() {
        let others = seen.entry(shown[at].clone()).or_default();
        if let Some(same) = others.iter().find(|other| whole[**other] == whole[at]) {
            shown[at] = shown[*same].clone();
            continue;
        }
        others.push(at);
        if others.len() > 1 {
            let mark = format!("~{}", others.len());
            let kept = width.saturating_sub(mark.len());
            let marked = shown[at].chars().take(kept).chain(mark.chars());
            shown[at] = marked.take(width).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_demangle::{demangle, shortened};
    use std::collections::HashSet;

    #[test]
    fn what_differs_is_kept() {
        let texts = [
            "gemm<float, 128, 64, row, column, split, none, 1>",
            "gemm<float, 128, 64, row, column, split, relu, 1>",
            "gemm<float, 128, 64, row, column, split, relu, 2>",
            "copy",
        ];
        assert_eq!(
            distinct_labels(&texts, 30, true),
            [
                "gemm<float, …, split, none, 1>",
                "gemm<float, …, split, relu, 1>",
                "gemm<float, …, split, relu, 2>",
                "copy"
            ]
        );
        assert_eq!(
            distinct_labels(&["a rather long text"], 10, false),
            ["a ra...ext"]
        );
        assert_eq!(distinct_labels(&["a\x1b[1m"], 10, true), ["a?[1m"]);
    }

    /// 201 names of PyTorch, cuDNN, rocBLAS, Composable Kernel, Triton and others.
    #[test]
    fn names_of_real_kernels_are_told_apart_at_any_width() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/kernel_names.txt");
        let symbols = std::fs::read_to_string(file).unwrap();
        let symbols: Vec<&str> = symbols
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        assert!(symbols.len() >= 200);
        let whole: Vec<String> = symbols
            .iter()
            .map(|symbol| demangle(symbol.trim_end_matches(".kd")))
            .collect();
        let names = shortened(&whole);
        let different: HashSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len());
        let length = |names: &[String]| names.iter().map(String::len).sum::<usize>();
        assert!(
            length(&names) * 2 < length(&whole),
            "not even half is left out"
        );
        for unicode in [true, false] {
            for width in 16..=200 {
                let shown = distinct_labels(&names, width, unicode);
                let different: HashSet<&String> = shown.iter().collect();
                assert_eq!(different.len(), shown.len(), "{width}");
                assert!(shown.iter().all(|name| name.chars().count() <= width));
                let numbered = shown.iter().filter(|name| name.contains('~')).count();
                assert!(
                    width < if unicode { 16 } else { 28 } || numbered == 0,
                    "{width}: {numbered} by number only"
                );
            }
        }
    }

    #[test]
    fn any_texts_at_any_width() {
        let texts = [
            "",
            "a",
            "aaaa",
            "aaab",
            "aaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaab",
            "aaaa",
        ];
        for width in 2..20 {
            let shown = distinct_labels(&texts, width, width % 2 == 0);
            assert!(
                shown.iter().all(|text| text.chars().count() <= width),
                "{shown:?}"
            );
            assert_eq!(shown[2], shown[6]);
        }
    }

    /// Neither what texts have in common nor where they differ says anything where one is alone.
    #[test]
    fn a_text_that_is_alone_shows_its_ends() {
        let texts = ["abcdefghijklmnopqrstuvwxyz", "0123456789abcdefghij"];
        assert_eq!(
            distinct_labels(&texts, 12, false),
            ["abcd...vwxyz", "0123...fghij"]
        );
    }
}

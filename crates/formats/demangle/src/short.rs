//! A kernel's name without the parts that do not help a person to recognise it.
//!
//! `void at::native::elementwise<4, at::native::Add<float>, std::array<char*, 3ul> >(int, ...)`
//! becomes `elementwise<4, Add<float>, array<char*, 3>>`: no return type, no parameters (the
//! template arguments decide which kernel it is), no namespaces, no casts of constants.

use std::collections::HashMap;

/// Parts with deeper nesting stay as they are.
const DEEPEST: usize = 64;

/// Returns the short form of a demangled name, which another name may have, too. A name that
/// is not from C++ stays as it is.
fn short(name: &str) -> String {
    let mut name = name.strip_suffix(".kd").unwrap_or(name);
    while let Some((before, _)) = name.rsplit_once(" [clone ").filter(|_| name.ends_with(']')) {
        name = before;
    }
    if !name.contains(['<', '(']) {
        return name.to_owned();
    }
    function(name).unwrap_or_else(|| name.to_owned())
}

/// Returns the short forms of different names. Where two would be equal, both names stay as they
/// are.
pub fn shortened<S: AsRef<str>>(names: &[S]) -> Vec<String> {
    let mut shown: Vec<String> = names.iter().map(|name| short(name.as_ref())).collect();
    let mut times: HashMap<&str, usize> = HashMap::new();
    for name in &shown {
        *times.entry(name).or_default() += 1;
    }
    let is_shared = |name: &String| times.get(name.as_str()).is_some_and(|times| *times > 1);
    let shared: Vec<bool> = shown.iter().map(is_shared).collect();
    for (at, _) in shared.into_iter().enumerate().filter(|(_, shared)| *shared) {
        names[at].as_ref().clone_into(&mut shown[at]);
    }
    shown
}

/// Returns the short name of a function, or None where brackets do not match or nothing would be
/// left.
fn function(name: &str) -> Option<String> {
    let name = name.strip_suffix(" const").unwrap_or(name);
    let path = match name.ends_with(')') {
        true => &name[..group_before(name)?],
        false => name,
    };
    // Spaces in brackets belong to arguments, so the last other space ends the return type.
    let path = split(path, " ")?.pop()?;
    Some(in_path(path, 0)?).filter(|short| !short.is_empty())
}

/// Shortens a type or a constant among template arguments.
fn argument(text: &str, depth: usize) -> Option<String> {
    let text = text.trim();
    if let Some(cast) = text.strip_prefix('(').filter(|_| depth < DEEPEST) {
        let end = cast.find(')')?;
        let value = &cast[end + 1..];
        if value.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return Some(constant(value).to_owned());
        }
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return Some(constant(text).to_owned());
    }
    in_path(text, depth)
}

/// Returns `3ul` as `3`.
fn constant(text: &str) -> &str {
    let bare = text.trim_end_matches(['u', 'l', 'U', 'L']);
    let is_number = bare.bytes().all(|c| c.is_ascii_digit() || c == b'-');
    if is_number { bare } else { text }
}

/// Shortens a qualified name: leading namespaces are removed, and each part is shortened.
fn in_path(text: &str, depth: usize) -> Option<String> {
    if depth > DEEPEST {
        return Some(text.to_owned());
    }
    let mut parts = split(text, "::")?;
    let is_namespace = |part: &&str| {
        part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
            || matches!(*part, "(anonymous namespace)" | "{anonymous}")
    };
    let last = parts.len().checked_sub(1)?;
    let leading = parts[..last]
        .iter()
        .take_while(|part| is_namespace(part))
        .count();
    parts.drain(..leading);

    let mut shown: Vec<String> = Vec::new();
    let mut lambdas = String::new();
    for part in parts {
        if part.starts_with("{lambda") || part.starts_with("{unnamed") {
            // The number of this item within the function, and what follows it in a type.
            let number = part.rsplit_once('#').map_or(part, |(_, number)| number);
            lambdas.push('#');
            lambdas.push_str(number.split_once('}').map_or(number, |(number, _)| number));
        } else if lambdas.is_empty() || !part.starts_with("operator()") {
            shown.push(part_of_path(part, depth)?);
        }
    }
    let mut short = shown.join("::");
    if !lambdas.is_empty() {
        short = format!("{short}{{{lambdas}}}");
    }
    Some(short)
}

/// Shortens one part of a qualified name: its template arguments are kept, and the parameters of a
/// function are removed.
fn part_of_path(part: &str, depth: usize) -> Option<String> {
    let Some(open) = part.find(['<', '(']).filter(|at| *at > 0) else {
        return Some(part.to_owned());
    };
    if part.starts_with("operator") || part.as_bytes()[open - 1] == b' ' {
        // A function's type, `void (*)(int)`, and operators.
        return Some(part.to_owned());
    }
    if part.as_bytes()[open] == b'(' {
        return Some(part[..open].to_owned());
    }
    let close = open + closing(&part[open..])?;
    let arguments: Option<Vec<String>> = split(&part[open + 1..close], ",")?
        .into_iter()
        .map(|text| argument(text, depth + 1))
        .collect();
    let after = &part[close + 1..];
    let after = if after.starts_with('(') { "" } else { after };
    Some(format!(
        "{}<{}>{after}",
        &part[..open],
        arguments?.join(", ")
    ))
}

/// Returns where the group of parentheses starts that ends the text.
fn group_before(text: &str) -> Option<usize> {
    let mut groups = Vec::new();
    walk(text, |at, depth, byte| {
        if byte == b'(' && depth == 0 {
            groups.push(at);
        }
        true
    })?;
    groups.pop()
}

/// Returns where the bracket closes that opens the text.
fn closing(text: &str) -> Option<usize> {
    let mut found = None;
    walk(text, |at, depth, byte| {
        if depth == 1 && matches!(byte, b'>' | b')' | b'}' | b']') {
            found = Some(at);
        }
        found.is_none()
    })?;
    found
}

/// Returns the parts between those separators that are not within brackets.
fn split<'a>(text: &'a str, separator: &str) -> Option<Vec<&'a str>> {
    let mut parts = Vec::new();
    let mut from = 0;
    walk(text, |at, depth, _| {
        if depth == 0 && at >= from && text.as_bytes()[at..].starts_with(separator.as_bytes()) {
            parts.push(&text[from..at]);
            from = at + separator.len();
        }
        true
    })?;
    parts.push(&text[from..]);
    Some(parts)
}

/// Calls `each` with each byte that is not part of an operator's name, its position, and how many
/// brackets are open before it, until `each` returns false. None where brackets do not match.
fn walk(text: &str, mut each: impl FnMut(usize, usize, u8) -> bool) -> Option<()> {
    let bytes = text.as_bytes();
    let mut open: Vec<u8> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !each(at, open.len(), bytes[at]) {
            return Some(());
        }
        match bytes[at] {
            b'<' => open.push(b'>'),
            b'(' => open.push(b')'),
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            b'-' if bytes.get(at + 1) == Some(&b'>') => at += 1,
            closes @ (b'>' | b')' | b'}' | b']') => {
                if open.pop() != Some(closes) {
                    return None;
                }
            }
            _ => at += of_operator(&text.as_bytes()[at..]),
        }
        at += 1;
    }
    open.is_empty().then_some(())
}

/// Returns how many more bytes the name of an operator takes that starts here. `operator()` and
/// `operator<<` contain brackets that are not brackets of the name's structure.
fn of_operator(bytes: &[u8]) -> usize {
    const WORD: &[u8] = b"operator";
    let Some(symbol) = bytes.strip_prefix(WORD) else {
        return 0;
    };
    let length = match symbol {
        [b'(', b')', ..] | [b'[', b']', ..] => 2,
        _ => symbol.iter().take_while(|c| b"<>=!-".contains(c)).count(),
    };
    if length == 0 {
        return 0;
    }
    // A space keeps the operator from its template arguments.
    let space = usize::from(symbol[length..].starts_with(b" <"));
    WORD.len() - 1 + length + space
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_is_left_out() {
        for (name, wanted) in [
            ("vadd(float*, float*, int)", "vadd"),
            ("vadd", "vadd"),
            ("copy_buffer.kd", "copy_buffer"),
            ("f(int) [clone .kd]", "f"),
            (
                "void at::native::elementwise<4, at::native::Add<float>, std::array<char*, 3ul> >(int, X)",
                "elementwise<4, Add<float>, array<char*, 3>>",
            ),
            (
                "void at::native::(anonymous namespace)::k<(bool)1, (ck::Kind)2>(int)",
                "k<1, 2>",
            ),
            (
                "void k<f(T&)::{lambda()#1}::operator()() const::{lambda(int, int)#3}>(int)",
                "k<f{#1#3}>",
            ),
            (
                "void A<int>::run<float const*>(A<int>&)",
                "A<int>::run<float const*>",
            ),
            (
                "void k<void (*)(int, a::b), -3>()",
                "k<void (*)(int, a::b), -3>",
            ),
            ("bool x::operator<< <int>(int)", "operator<< <int>"),
        ] {
            assert_eq!(short(name), wanted, "{name}");
        }
    }

    #[test]
    fn what_is_no_name_stays() {
        for name in [
            "", "(", "a<b", "x)", "()", "{lambda", "f<(>)", "::", "a->b<(c>", "é<ü>(",
        ] {
            assert_eq!(short(name), name);
        }
        let deep = format!("void {}int{}(int)", "a<".repeat(500), ">".repeat(500));
        assert!(short(&deep).starts_with("a<a<a<"));
    }

    #[test]
    fn brackets_that_are_not_those_of_the_name_do_not_count() {
        for (name, wanted) in [
            ("void k<int [3]>(int)", "k<int [3]>"),
            ("void k<decltype(a->b), 1>(int)", "k<decltype, 1>"),
            ("void k<1-(2)>(int)", "k<1-(2)>"),
            ("S::operator()", "S::operator()"),
            ("void S::operator()(int, T<float>)", "operator()"),
            (
                "bool x::operator< <int, float>(int)",
                "operator< <int, float>",
            ),
            ("int x::operator[](int)", "operator[]"),
            ("x::A x::operator->(int)", "operator->"),
        ] {
            assert_eq!(short(name), wanted, "{name}");
        }
    }

    #[test]
    fn constants_lose_their_types_and_other_texts_do_not() {
        for (text, wanted) in [
            ("3", "3"),
            ("3ul", "3"),
            ("-3L", "-3"),
            ("12abul", "12abul"),
            ("0x1f", "0x1f"),
        ] {
            assert_eq!(constant(text), wanted);
        }
        for (text, wanted) in [
            ("(int)-3", "-3"),
            ("(a::Kind)2u", "2"),
            ("(int)x", "(int)x"),
            (" 7ul ", "7"),
        ] {
            assert_eq!(argument(text, 1).as_deref(), Some(wanted));
        }
        // Parts that are nested too deeply stay.
        let short = |depth| argument("(bool)1", depth).unwrap();
        assert_eq!([DEEPEST - 1, DEEPEST].map(short), ["1", "(bool)1"]);
    }
}

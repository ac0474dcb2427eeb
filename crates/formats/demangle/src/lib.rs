//! Names of C++ functions: from the symbol to the form that people read, and the short form.
//!
//! It is a crate of its own because a dev build optimises it and not the writers that use it. They
//! take long to compile, and this takes long to run where a program has tens of thousands of kernels.

mod short;

use cpp_demangle::{DemangleNodeType, DemangleOptions, DemangleWrite, ParseOptions, Symbol};
use std::fmt;

pub use short::shortened;

/// The most bytes of a demangled name. None is cut: a symbol whose name would be longer is not
/// demangled, since substitutions can make a short symbol huge. PyTorch's `randn` launches a kernel
/// whose name has more than 5,000 bytes.
pub const LONGEST: usize = 16 << 10;
/// A symbol with deeper nesting is not demangled.
const DEEPEST: u32 = 96;

/// Demangles, or returns the text as it is.
pub fn demangle(symbol: &str) -> String {
    demangle_by(symbol).0
}

/// Demangles a symbol of host code, which may be Rust's: without the hash at its end.
pub fn demangle_host(symbol: &str) -> String {
    // Both languages have names of the form `_ZN…E`; Rust's end with a hash.
    let may_be_rust = symbol.starts_with("_R") || symbol.contains("17h");
    match rustc_demangle::try_demangle(symbol) {
        Ok(name) if may_be_rust => format!("{name:#}"),
        _ => demangle(symbol),
    }
}

/// Does the same as [`demangle`], and returns how many bytes were written to make it.
pub fn demangle_by(symbol: &str) -> (String, usize) {
    let options = ParseOptions::default().recursion_limit(DEEPEST);
    let Ok(parsed) = Symbol::<&str>::new_with_options(symbol, &options) else {
        return (symbol.to_owned(), 0);
    };
    let options = DemangleOptions::new().recursion_limit(DEEPEST);
    let written = |options: &DemangleOptions| -> Option<String> {
        let mut out = Bounded(String::new());
        parsed.structured_demangle(&mut out, options).ok()?;
        Some(out.0)
    };
    let Some(full) = written(&options) else {
        return (symbol.to_owned(), LONGEST);
    };
    let work = full.len();
    // Applies to something within a function. Function names among template arguments are excluded,
    // because all demanglers write their types.
    let name = if full.contains(")::") && !symbol.contains("L_Z") {
        match written(&options.no_return_type()) {
            Some(bare) => with_outer_type(full, bare),
            None => full,
        }
    } else {
        full
    };
    (with_suffixes(name), work)
}

/// Returns a name with the return type of the function itself, but without the return types of the
/// functions around what is named in it (`f<int>()::{lambda()#1}`), as GNU's demangler does. Ours
/// writes either all of them (`full`) or none (`bare`).
fn with_outer_type(full: String, bare: String) -> String {
    // Only templates have their return type in the symbol.
    let head = bare.split('<').next().unwrap_or_default();
    if full == bare || full.starts_with(head) {
        return bare;
    }
    match full.find(head).and_then(|at| full.get(..at)) {
        Some(outer) if outer.ends_with(' ') && !outer.contains(['(', '{']) => {
            format!("{outer}{bare}")
        }
        _ => full,
    }
}

/// Writes numbers among template arguments with a suffix for their type ("3u"), as GNU's demangler
/// and so AMD's tool do. Ours writes a cast ("(unsigned int)3").
fn with_suffixes(name: String) -> String {
    const CASTS: [(&str, &str); 5] = [
        ("(unsigned int)", "u"),
        ("(unsigned long)", "ul"),
        ("(unsigned long long)", "ull"),
        ("(long)", "l"),
        ("(long long)", "ll"),
    ];
    if !CASTS.iter().any(|(cast, _)| name.contains(cast)) {
        return name;
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name.as_str();
    while let Some(first) = rest.chars().next() {
        let literal = CASTS.iter().find_map(|(cast, suffix)| {
            let behind = rest.strip_prefix(cast)?;
            let digits = behind.strip_prefix('-').unwrap_or(behind);
            let after = digits.trim_start_matches(|c: char| c.is_ascii_digit());
            // If no digits follow, this is a list of parameters.
            (after.len() < digits.len()).then_some((behind, after, *suffix))
        });
        match literal {
            Some((behind, after, suffix)) => {
                let number = behind.get(..behind.len() - after.len());
                out.push_str(number.unwrap_or_default());
                out.push_str(suffix);
                rest = after;
            }
            None => {
                out.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
            }
        }
    }
    out
}

/// Returns a type as people write it, from its name under C++'s `typeid` ("PKv" is "void const*").
pub fn demangle_type(type_name: &str) -> String {
    let whole = demangle(&format!("_ZTS{type_name}"));
    let readable = whole.strip_prefix("typeinfo name for ");
    readable.unwrap_or(type_name).to_owned()
}

/// A text that refuses to grow too long.
struct Bounded(String);

impl DemangleWrite for Bounded {
    fn push_demangle_node(&mut self, _: DemangleNodeType) {}
    fn pop_demangle_node(&mut self) {}
    fn write_string(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Returns the function's own name. From the end, whole groups of brackets and spaces are skipped,
/// and then everything up to a space or a colon is taken. (This is AMD's rule, so that `-T` gives
/// the same names.)
pub fn truncate(name: &str) -> &str {
    let bytes = name.as_bytes();
    let mut end = bytes.len();
    let mut open: Vec<u8> = Vec::new();
    while let Some(&byte) = end.checked_sub(1).and_then(|last| bytes.get(last)) {
        match (byte, open.last()) {
            (b')', _) => open.push(b'('),
            (b']', _) => open.push(b'['),
            // Inside other brackets an angle bracket may be an operator.
            (b'>', None | Some(b'<')) => open.push(b'<'),
            (_, Some(&wanted)) if byte == wanted => {
                open.pop();
            }
            (_, Some(_)) | (b' ', None) => {}
            _ => break,
        }
        end -= 1;
    }
    let head = name.get(..end).unwrap_or(name);
    let start = head.rfind([' ', ':']).map_or(0, |at| at + 1);
    match head.get(start..) {
        Some(bare) if !bare.is_empty() => bare,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_host_code_are_those_of_its_language() {
        let names = [
            ("_ZN3app4step17h0123456789abcdefE", "app::step"),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
            (
                "_ZN3app3Net7forwardEji",
                "app::Net::forward(unsigned int, int)",
            ),
            ("main", "main"),
            ("_ZN", "_ZN"),
        ];
        for (symbol, name) in names {
            assert_eq!(demangle_host(symbol), name);
        }
    }

    /// c++filt prints the expected names.
    #[test]
    fn numbers_in_templates_have_suffixes() {
        for (symbol, name) in [
            (
                "_Z1fILj3ELm4ELln5EEvj",
                "void f<3u, 4ul, -5l>(unsigned int)",
            ),
            (
                "_Z1gILi3ELb1ELy7ELx8EEvm",
                "void g<3, true, 7ull, 8ll>(unsigned long)",
            ),
            ("_Z1hPFvjE", "h(void (*)(unsigned int))"),
        ] {
            assert_eq!(demangle(symbol), name);
        }
    }

    /// c++filt prints the expected names.
    #[test]
    fn functions_around_a_lambda_have_no_return_type() {
        for (symbol, name) in [
            (
                "_Z4kernIZN2at6native4implIZNS1_2goEvEUliE_EEvT_EUlvE_EvS4_",
                "void kern<at::native::impl<at::native::go()::{lambda(int)#1}>(at::native::go()::{lambda(int)#1})::{lambda()#1}>(at::native::impl<at::native::go()::{lambda(int)#1}>(at::native::go()::{lambda(int)#1})::{lambda()#1})",
            ),
            (
                "_Z4kernIZN2at6native12_GLOBAL__N_13hidIcEElRKT_EUlvE_EvS4_",
                "void kern<at::native::(anonymous namespace)::hid<char>(char const&)::{lambda()#1}>(at::native::(anonymous namespace)::hid<char>(char const&)::{lambda()#1})",
            ),
            (
                "_Z4kernIZN2at6native1SIfE3runIdEEiT_EUlvE_EvS5_",
                "void kern<at::native::S<float>::run<double>(double)::{lambda()#1}>(at::native::S<float>::run<double>(double)::{lambda()#1})",
            ),
            ("_ZN2ns3fooIiLi3EEEvPT_", "void ns::foo<int, 3>(int*)"),
        ] {
            assert_eq!(demangle(symbol), name);
        }
    }

    /// The expected types come from AMD's rocpd (golden/hip724).
    #[test]
    fn types_are_amds() {
        for (type_name, readable) in [
            ("PKv", "void const*"),
            ("m", "unsigned long"),
            ("P4dim3", "dim3*"),
            ("P12ihipStream_t", "ihipStream_t*"),
            (
                "P15HIP_vector_typeIjLj3EE",
                "HIP_vector_type<unsigned int, 3u>*",
            ),
            ("no type", "no type"),
        ] {
            assert_eq!(demangle_type(type_name), readable);
        }
    }

    #[test]
    fn a_symbol_that_explodes_keeps_its_mangled_name() {
        // Each parameter names the one before it twice: 2^27 times `A<...>` in some 300 bytes.
        let mut symbol = String::from("_Z1f1AIiiE");
        for digit in "0123456789ABCDEFGHIJKLMNOPQ".chars() {
            symbol.push_str(&format!("S_IS{digit}_S{digit}_E"));
        }
        assert_eq!(demangle(&symbol), symbol);
        let short = symbol.split("S_IS3_").next().unwrap();
        assert!(demangle(short).starts_with("f(A<int, int>, A<A<int, int>, A<int, int> >"));
        let deep = format!("_Z1f{}i", "P".repeat(4000));
        assert_eq!(demangle(&deep), deep);
    }

    /// The return type is what stands before the function's own name, and only there.
    #[test]
    fn only_a_plain_type_before_the_name_is_kept() {
        let bare = "f<int>()::{lambda()#1}";
        for (full, wanted) in [
            (bare, bare),
            // Only functions around it have a type here.
            ("f<int>()::{lambda()#1} g()", bare),
            ("void f<void g<int>()>()::x", "void f<int>()::{lambda()#1}"),
            (
                "S<1> const f<g()>()::x",
                "S<1> const f<int>()::{lambda()#1}",
            ),
            // A type that is written around the name, and what does not end before the name.
            ("void (*f<int>())(int)", "void (*f<int>())(int)"),
            ("void (*(int)) f<int>()", "void (*(int)) f<int>()"),
            ("ns::f<int>()", "ns::f<int>()"),
            ("void g<int>()::x", "void g<int>()::x"),
        ] {
            let found = with_outer_type(full.to_owned(), bare.to_owned());
            assert_eq!(found, wanted, "{full}");
        }
    }
}

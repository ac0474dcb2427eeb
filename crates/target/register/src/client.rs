//! The libraries that may register, by their names.

use std::ffi::CStr;

/// A library that may register.
#[derive(Debug)]
pub struct Client {
    /// The name that the library uses in every call and callback.
    pub name: &'static CStr,
    /// For secure mode: the library's file name up to the major version.
    stem: &'static str,
    /// For secure mode: the first digits of acceptable major versions.
    majors: std::ops::RangeInclusive<char>,
}

/// All libraries that may register. A library's position is its index, from which its handles are
/// made.
///
/// Source: `docs/sources.md#register`. As in AMD's library, `hsa` does not admit major version 1,
/// although AMD ships that one: secure mode refuses it.
pub static CLIENTS: [Client; 10] = [
    Client {
        name: c"hsa",
        stem: "libhsa-runtime64.so.",
        majors: '2'..='9',
    },
    Client {
        name: c"hip",
        stem: "libamdhip64.so.",
        majors: '6'..='9',
    },
    Client {
        name: c"roctx",
        stem: "libroctx64.so.",
        majors: '4'..='9',
    },
    Client {
        name: c"hip_compiler",
        stem: "libamdhip64.so.",
        majors: '6'..='9',
    },
    Client {
        name: c"rccl",
        stem: "librccl.so.",
        majors: '6'..='9',
    },
    Client {
        name: c"rocdecode",
        stem: "librocdecode.so.",
        majors: '0'..='9',
    },
    Client {
        name: c"rocjpeg",
        stem: "librocjpeg.so.",
        majors: '0'..='9',
    },
    Client {
        name: c"rocattach",
        stem: "librocprofiler-sdk-attach.so.",
        majors: '0'..='9',
    },
    Client {
        name: c"hipFile",
        stem: "libhipfile.so.",
        majors: '0'..='9',
    },
    Client {
        name: c"rocshmem",
        stem: "librocshmem.so.",
        majors: '0'..='9',
    },
];

/// Index of `hsa`.
pub const HSA: usize = 0;
/// Index of `rocattach`, the table of the attach helper, which is always handed over first.
pub const ROCATTACH: usize = 7;
/// How many copies of one library may register. AMD's released libraries allow 8; the newest
/// source, with more libraries, allows 6. Handles are computed from it, so they equal the handles
/// of the released libraries.
pub const INSTANCES: u32 = 8;

/// Returns the index of the library with this name. Case matters, as in AMD's library.
pub fn find(name: &CStr) -> Option<usize> {
    CLIENTS.iter().position(|c| c.name == name)
}

/// For secure mode: whether `client` may be loaded from a file of this name (without directories).
pub fn file_name_fits(client: &Client, file_name: &str) -> bool {
    let Some(version) = file_name.strip_prefix(client.stem) else {
        return false;
    };
    let mut rest = version.chars();
    if !rest
        .next()
        .is_some_and(|major| client.majors.contains(&major))
    {
        return false;
    }
    match rest.as_str() {
        "" => true,
        more => more
            .strip_prefix('.')
            .is_some_and(|m| !m.is_empty() && m.chars().all(|c| c == '.' || c.is_ascii_digit())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_exactly() {
        assert_eq!(find(c"hsa"), Some(HSA));
        assert_eq!(find(c"rocattach"), Some(ROCATTACH));
        assert_eq!(find(c"hipFile"), Some(8));
        assert_eq!(find(c"HSA"), None);
        assert_eq!(find(c"hipfile"), None);
        assert_eq!(find(c""), None);
    }

    #[test]
    fn secure_mode_matches_file_names_as_amds_patterns_do() {
        let hip = &CLIENTS[1];
        for good in ["libamdhip64.so.7", "libamdhip64.so.7.2.53211"] {
            assert!(file_name_fits(hip, good), "{good}");
        }
        for bad in [
            "libamdhip64.so",
            "libamdhip64.so.5",
            "libamdhip64.so.7x",
            "libamdhip64.so.7.",
            "xlibamdhip64.so.7",
            "libamdhip64.so.7.2.evil",
        ] {
            assert!(!file_name_fits(hip, bad), "{bad}");
        }
        assert!(file_name_fits(&CLIENTS[HSA], "libhsa-runtime64.so.2.1.0"));
        assert!(!file_name_fits(&CLIENTS[HSA], "libhsa-runtime64.so.1.2.3"));
    }
}

//! Events of OpenMP: whether they are asked for, and which.
//!
//! Unlike for other domains there is a context only where they are asked for when the tool is
//! initialised. OpenMP's runtime asks for its tool once, when it starts, and a context would make us
//! that tool.

use crate::sdk::Sdk;
use midair_abi::ompt::CATEGORIES;
use midair_settings::tool_boolean;
use std::ffi::{CStr, c_int};

/// The setting that asks for them.
const ASKED: &CStr = c"ROCPROF_OMPT_TRACE";
/// The setting that chooses some, by words.
const CHOSEN: &CStr = c"ROCPROF_OMPT_TRACE_OPERATIONS";
/// What is said where they are asked for in an attach.
pub const TOO_LATE: &str = "ROCPROF_OMPT_TRACE has no effect: OpenMP events require a started program, since its runtime loads its tool \
     once, at its start";

/// Whether they are asked for.
pub fn is_asked(sdk: Sdk) -> bool {
    sdk.setting(ASKED)
        .is_some_and(|value| tool_boolean(&value) == Some(true))
}

/// Returns the operations that are asked for, with a note about words that mean none. Where no words
/// choose any, all are listed but the one that tells tools of the runtime's functions, which is not
/// for files.
pub fn operations(sdk: Sdk) -> Vec<c_int> {
    if !is_asked(sdk) {
        return Vec::new();
    }
    let words = sdk.setting(CHOSEN).unwrap_or_default();
    let (operations, unknown) = of_words(&words);
    for word in unknown {
        sdk.note(&format!(
            "{}: '{word}' is not a kind of OpenMP event",
            CHOSEN.to_string_lossy()
        ));
    }
    operations
}

/// Returns the operations that words mean, and the words that mean none.
fn of_words(words: &str) -> (Vec<c_int>, Vec<&str>) {
    let words = words.split(',').map(str::trim);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let of = |word: &str| CATEGORIES.iter().find(|(name, _)| *name == word);
    let all = words.is_empty() || words.contains(&"all");
    let operations = CATEGORIES
        .iter()
        .filter(|(name, _)| all || words.contains(name))
        .flat_map(|(_, operations)| *operations)
        .filter_map(|operation| c_int::try_from(*operation).ok())
        .collect();
    let unknown = words
        .into_iter()
        .filter(|word| *word != "all" && of(word).is_none());
    (operations, unknown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_choose_operations() {
        assert_eq!(of_words("thread"), (vec![0, 1], vec![]));
        assert_eq!(of_words("error, device,"), (vec![7, 8, 9, 29], vec![]));
        assert_eq!(of_words("").0.len(), 30);
        assert_eq!(of_words("task,all").0.len(), 30);
        assert_eq!(of_words("nothing"), (vec![], vec!["nothing"]));
    }
}

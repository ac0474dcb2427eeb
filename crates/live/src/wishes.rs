//! What a view asks of a session, and what the session answers.

use crate::model::Model;
use midair_output::Keep;

/// Answers that are kept until somebody asks for them.
const MOST_ANSWERS: usize = 64;

/// Records of a span of time that are to become files, once it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// CLOCK_BOOTTIME ns.
    pub from: u64,
    /// The same.
    pub to: u64,
    /// Why, in words for the user.
    pub why: String,
}

/// What became of a [`Cut`], in words for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Why it was made.
    pub why: String,
    /// Its files, or why there are none.
    pub files: Result<Vec<String>, String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    keep: Option<Keep>,
    cuts: Vec<Cut>,
    answers: Vec<Answer>,
}

impl Model {
    /// What the session is to keep from its next poll on.
    pub fn wish_to_keep(&mut self, keep: Keep) {
        self.wishes.keep = Some(keep);
    }

    /// Files are to be made of a span.
    pub fn wish_for(&mut self, cut: Cut) {
        self.wishes.cuts.push(cut);
    }

    /// What is to be kept from now on, if that was wished since the last call.
    pub fn keep_wished(&mut self) -> Option<Keep> {
        self.wishes.keep.take()
    }

    /// Takes the wishes out whose spans ended before `time`, or all where it is None.
    pub fn cuts_due(&mut self, time: Option<u64>) -> Vec<Cut> {
        let is_due = |cut: &mut Cut| time.is_none_or(|time| cut.to < time);
        self.wishes.cuts.extract_if(.., is_due).collect()
    }

    /// Whether a span is waited for.
    pub fn has_cuts(&self) -> bool {
        !self.wishes.cuts.is_empty()
    }

    /// What became of a wish.
    pub fn answer(&mut self, answer: Answer) {
        if self.wishes.answers.len() < MOST_ANSWERS {
            self.wishes.answers.push(answer);
        }
    }

    /// The answers since the last call.
    pub fn answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.wishes.answers)
    }
}

//! Stacks at which work was launched (`--stacks`), as interned data: each stack, frame, function and
//! file once.
//!
//! A frame's mapping is its file, and its place in it is the line, as well as its source path and
//! line number: viewers that know only the former still tell lines apart.

use super::interner::Interner;
use super::messages::{Callstack, Frame, InternedData, Mapping};
use foldhash::fast::RandomState;
use midair_trace::code::one_line;
use midair_trace::index::Stacks;
use std::collections::{HashMap, HashSet};

/// What has been interned.
pub(super) struct Callstacks<'s> {
    stacks: &'s Stacks,
    known: HashSet<u32, RandomState>,
    functions: Interner,
    files: Interner,
    /// By function, file and line.
    frames: HashMap<(u64, u64, u32), u64, RandomState>,
}

impl<'s> Callstacks<'s> {
    pub(super) fn new(stacks: &'s Stacks) -> Callstacks<'s> {
        Callstacks {
            stacks,
            known: HashSet::default(),
            functions: Interner::default(),
            files: Interner::default(),
            frames: HashMap::default(),
        }
    }

    /// Returns the number of the stack of a launch, or of a dispatch where it has one of its own. A
    /// stack that was not interned yet is added to `new`.
    pub(super) fn number(
        &mut self,
        new: &mut InternedData,
        correlation: u64,
        dispatch: u64,
    ) -> Option<u64> {
        let stack = self.stacks.of_work(correlation, dispatch);
        if stack == 0 {
            return None;
        }
        let number = u64::from(stack);
        if self.known.contains(&stack) {
            return Some(number);
        }
        // The outermost frame comes first.
        let mut frames = Vec::new();
        for (function, line) in self.stacks.frames(stack)?.rev() {
            let name = self
                .functions
                .number(&mut new.function_names, &one_line(&function.name));
            let before = new.source_paths.len();
            let file = self
                .files
                .number(&mut new.source_paths, &one_line(&function.file));
            if let Some(path) = new.source_paths.get(before) {
                new.mapping_paths.push(path.clone());
                new.mappings.push(Mapping {
                    iid: Some(file),
                    path_string_ids: vec![file],
                });
            }
            let next = self.frames.len() as u64 + 1;
            let frame = *self.frames.entry((name, file, line)).or_insert(next);
            if frame == next {
                new.frames.push(Frame {
                    iid: Some(frame),
                    function_name_id: Some(name),
                    mapping_id: Some(file),
                    rel_pc: Some(line.into()),
                    source_path_iid: Some(file),
                    line_number: Some(line),
                });
            }
            frames.push(frame);
        }
        self.known.insert(stack);
        new.callstacks.push(Callstack {
            iid: Some(number),
            frame_ids: frames,
        });
        Some(number)
    }
}

//! Names of kinds, operations and parameters, as the writers need them.
//!
//! Plain data, so that the writers do not depend on where it comes from: in the product from AMD's
//! headers, in a test from a golden file.

use crate::cuda;
use crate::limits;
use midair_record::event::{Header, Marker, kind};
use std::borrow::Cow;
use std::collections::HashMap;

/// A text that is usually in a table of the program.
pub type Text = Cow<'static, str>;

/// A tracing kind and its operations, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kind {
    /// Without prefix: "HSA_CORE_API".
    pub name: Text,
    /// By operation id.
    pub operations: Vec<Text>,
}

/// How the words of a parameter become text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Hexadecimal, or "(null)"; never followed.
    Pointer,
    /// Signed, of so many bytes.
    Signed(u8),
    /// Unsigned, of so many bytes.
    Unsigned(u8),
    /// IEEE, of 4 or 8 bytes.
    Float(u8),
    /// A number with names; `prefix` begins the text of a number without one.
    Enum {
        /// "hipMemcpy".
        prefix: Text,
        /// Value and short name ("HostToDevice").
        values: Vec<(i64, Text)>,
    },
    /// A struct by value, printed as `{last=…, first=…}`.
    Struct(Vec<Field>),
    /// A struct by value of so many bytes whose fields are not known: its bytes in hexadecimal.
    Bytes(u32),
}

impl Shape {
    /// Bytes that a value takes.
    pub fn size(&self) -> u32 {
        match self {
            Shape::Pointer => 8,
            Shape::Signed(size) | Shape::Unsigned(size) | Shape::Float(size) => u32::from(*size),
            Shape::Enum { .. } => 4,
            Shape::Struct(fields) => fields
                .iter()
                .map(|f| f.offset + f.shape.size())
                .max()
                .unwrap_or(0),
            Shape::Bytes(size) => *size,
        }
    }

    /// 8-byte words that a value takes in a record: each parameter begins a new word.
    pub fn words(&self) -> usize {
        self.size().div_ceil(8) as usize
    }
}

/// A field of a struct by value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Text,
    /// Bytes from the struct's begin.
    pub offset: u32,
    /// What it is.
    pub shape: Shape,
}

/// A parameter of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its type as C++'s `typeid` names it ("PKv"): what AMD's json has.
    pub type_name: Text,
    /// Its name.
    pub name: Text,
    /// How to print it.
    pub shape: Shape,
}

/// Everything that has a name.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// `rocprofiler_buffer_tracing_kind_t` by number.
    pub buffer: Vec<Kind>,
    /// `rocprofiler_callback_tracing_kind_t` by number.
    pub callback: Vec<Kind>,
    /// Kinds of ours, which only CUDA processes have, by number from that of [`kind::CUDA_RUNTIME_API`] on.
    pub cuda: Vec<Kind>,
    /// Parameters by record kind and operation.
    pub parameters: HashMap<(u8, u32), Vec<Parameter>>,
}

impl Names {
    fn known(&self, kind: u8) -> Option<&Kind> {
        let number = usize::from(midair_domain::domain(kind)?.number?);
        self.buffer.get(number).or_else(|| {
            let ours = number.checked_sub(cuda::FIRST_KIND)?;
            self.cuda.get(ours)
        })
    }

    /// Name of a record kind; of an unknown one, words that say so.
    pub fn kind(&self, kind: u8) -> Text {
        match self.known(kind) {
            Some(known) => known.name.clone(),
            None => Cow::Owned(format!("KIND_{kind}")),
        }
    }

    /// Name of an operation; of an unknown one (a runtime newer than our tables), words that say so.
    pub fn operation(&self, kind: u8, operation: u32) -> Cow<'_, str> {
        match self
            .known(kind)
            .and_then(|k| k.operations.get(operation as usize))
        {
            // A number in between that no function has.
            Some(name) if name.is_empty() => self.nameless(kind, operation),
            Some(name) => Cow::Borrowed(name),
            None => match cuda::operation(kind, operation) {
                Some(name) => Cow::Borrowed(name),
                None => self.nameless(kind, operation),
            },
        }
    }

    fn nameless(&self, kind: u8, operation: u32) -> Cow<'static, str> {
        Cow::Owned(format!("{}_OPERATION_{operation}", self.kind(kind)))
    }

    /// What a marker is called: its message where it has one by its nature (mark, thread range,
    /// process range), else the function.
    pub fn marker<'a>(&'a self, marker: &Marker, message: &'a [u8]) -> Cow<'a, str> {
        let Header {
            kind, operation, ..
        } = marker.header;
        if has_message(kind, operation) {
            limits::text(message)
        } else {
            self.operation(kind, operation)
        }
    }

    /// Parameters of a call, if known.
    pub fn parameters(&self, kind: u8, operation: u32) -> &[Parameter] {
        self.parameters
            .get(&(kind, operation))
            .map_or(&[], Vec::as_slice)
    }
}

/// The number of a record kind in files (json's and pftrace's `kind`): AMD's, and for CUDA's
/// domains one of ours.
pub(crate) const fn number_in_files(kind: u8) -> u32 {
    match midair_domain::domain(kind) {
        Some(midair_domain::Domain {
            number: Some(number),
            ..
        }) => *number as u32,
        _ => kind as u32,
    }
}

/// Whether a marker is named by its message (`ROCPROFILER_MARKER_CORE_RANGE_API_ID_*`: 0 mark, 1
/// thread range, 2 process range).
pub(crate) fn has_message(kind: u8, operation: u32) -> bool {
    kind == kind::MARKER_CORE_RANGE_API && operation <= 2
}

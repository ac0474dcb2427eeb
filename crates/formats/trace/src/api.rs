//! Names of kinds, operations and parameters, as the writers need them.
//!
//! This is plain data, so that the writers do not depend on its source: AMD's headers in the
//! product, a golden file in a test.

use crate::cuda;
use crate::limits;
use midair_record::event::{Header, Marker, kind};
use std::borrow::Cow;
use std::collections::HashMap;

/// A text that usually lies in a table of the program.
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
    /// In hexadecimal, or "(null)". The pointer is never followed.
    Pointer,
    /// A signed number of this many bytes.
    Signed(u8),
    /// An unsigned number of this many bytes.
    Unsigned(u8),
    /// An IEEE number of 4 or 8 bytes.
    Float(u8),
    /// A number whose values have names. `prefix` starts the text of a value without a name.
    Enum {
        /// "hipMemcpy".
        prefix: Text,
        /// Value and short name ("HostToDevice").
        values: Vec<(i64, Text)>,
    },
    /// A struct by value, printed as `{last=…, first=…}`.
    Struct(Vec<Field>),
    /// A struct by value of this many bytes whose fields are not known. It is printed as bytes in
    /// hexadecimal.
    Bytes(u32),
}

impl Shape {
    /// Returns how many bytes a value takes.
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

    /// Returns how many 8-byte words a value takes in a record. Each parameter starts a new word.
    pub fn words(&self) -> usize {
        self.size().div_ceil(8) as usize
    }
}

/// A field of a struct by value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Text,
    /// Bytes from the struct's start.
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
    /// The kinds behind these, which AMD has in newer headers.
    pub newer: Vec<Kind>,
    /// `rocprofiler_callback_tracing_kind_t` by number.
    pub callback: Vec<Kind>,
    /// midair's kinds, which only CUDA processes have, by number; the first is [`kind::CUDA_RUNTIME_API`].
    pub cuda: Vec<Kind>,
    /// Parameters by record kind and operation.
    pub parameters: HashMap<(u8, u32), Vec<Parameter>>,
}

impl Names {
    fn known(&self, kind: u8) -> Option<&Kind> {
        let number = usize::from(midair_domain::domain(kind)?.number?);
        let mut theirs = self.buffer.iter().chain(&self.newer);
        theirs.nth(number).or_else(|| {
            let ours = number.checked_sub(cuda::FIRST_KIND)?;
            self.cuda.get(ours)
        })
    }

    /// Returns the name of a record kind. For an unknown kind the text says so.
    pub fn kind(&self, kind: u8) -> Text {
        match self.known(kind) {
            Some(known) => known.name.clone(),
            None => Cow::Owned(format!("KIND_{kind}")),
        }
    }

    /// Returns the name of an operation. For an unknown one (from a runtime newer than our tables)
    /// the text says so.
    pub fn operation(&self, kind: u8, operation: u32) -> Cow<'_, str> {
        match self
            .known(kind)
            .and_then(|k| k.operations.get(operation as usize))
        {
            // An unused number between the functions' numbers.
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

    /// Returns the record kind with this name.
    pub fn kind_of(&self, name: &str) -> Option<u8> {
        let mut kinds = midair_domain::built().map(|domain| domain.kind);
        kinds.find(|kind| self.kind(*kind) == name)
    }

    /// Returns the number of the operation with this name. A name that is new (of a runtime newer than
    /// our tables) gets the next number. None: the kind has no operations.
    pub fn operation_of(&mut self, kind: u8, name: &str) -> Option<u32> {
        let nameless = format!("{}_OPERATION_", self.kind(kind));
        let number = usize::from(midair_domain::domain(kind)?.number?);
        let mut all = self.buffer.iter_mut().chain(&mut self.newer);
        let known = match all.nth(number) {
            Some(known) => known,
            None => self.cuda.get_mut(number.checked_sub(cuda::FIRST_KIND)?)?,
        };
        let place = known.operations.iter().position(|known| known == name);
        let place = place.filter(|_| !name.is_empty());
        if let Some(number) = name.strip_prefix(&nameless) {
            return number.parse().ok();
        }
        let place = place.unwrap_or_else(|| {
            known.operations.push(Cow::Owned(name.to_owned()));
            known.operations.len() - 1
        });
        u32::try_from(place).ok()
    }

    /// Returns the name of a marker. Markers of some kinds (mark, thread range, process range) are
    /// named by their message, all others by their function.
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

    /// Returns the parameters of a call, if they are known.
    pub fn parameters(&self, kind: u8, operation: u32) -> &[Parameter] {
        self.parameters
            .get(&(kind, operation))
            .map_or(&[], Vec::as_slice)
    }
}

/// Returns the number of a record kind in files (json's and pftrace's `kind`): AMD's, or one of
/// ours for CUDA's domains.
pub const fn number_in_files(kind: u8) -> u32 {
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
pub fn has_message(kind: u8, operation: u32) -> bool {
    kind == kind::MARKER_CORE_RANGE_API && operation <= 2
}

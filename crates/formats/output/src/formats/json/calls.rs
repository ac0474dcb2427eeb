//! Calls. All records of one function have the start of their objects in common, and the
//! beginnings of their arguments: these are made once.

use super::emit::Emit;
use super::size;
use crate::arguments;
use crate::job::Job;
use midair_domain::sets;
use midair_record::event::{Api, kind};
use midair_trace::api::Parameter;
use midair_trace::api::number_in_files;
use std::io;

/// From this number of an operation on, its function is looked up for each record. A target can
/// invent any number; the meaningful ones are smaller.
const MOST_KNOWN: usize = 1 << 12;

/// What the records of one function have in common.
struct Function<'j> {
    /// The start of the object, up to the correlation id.
    begin: Vec<u8>,
    parameters: &'j [Parameter],
    /// What is before the value of each argument.
    heads: Vec<Vec<u8>>,
    has_arguments: bool,
    has_stream: bool,
}

impl<'j> Function<'j> {
    fn new(job: &'j Job<'_>, kind: u8, operation: u32) -> Function<'j> {
        let has_stream = sets::HIP_CALLS.contains(kind);
        let size = match kind {
            _ if has_stream => size::HIP_API,
            kind::ROCDECODE_API_EXT => size::ROCDECODE_API,
            kind::OMPT => size::OPENMP,
            _ => size::HSA_API,
        };
        let has_arguments = has_stream || kind == kind::ROCDECODE_API_EXT;
        let parameters = match has_arguments {
            true => job.names.parameters(kind, operation),
            false => &[],
        };
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let head = |parameter: &Parameter| {
            let [of, name] = [&parameter.type_name, &parameter.name].map(|of| text(of));
            format!("{{\"type\":{of},\"name\":{name},\"value\":").into_bytes()
        };
        let number = number_in_files(kind);
        let begin = format!(
            "{{\"size\":{size},\"kind\":{number},\"operation\":{operation},\"correlation_id\":{{\"internal\":"
        );
        Function {
            begin: begin.into_bytes(),
            parameters,
            heads: parameters.iter().map(head).collect(),
            has_arguments,
            has_stream,
        }
    }
}

/// The functions that were called, and the place where the values of arguments are made.
pub(super) struct Calls<'j> {
    job: &'j Job<'j>,
    /// By kind and operation.
    known: Vec<Vec<Option<Box<Function<'j>>>>>,
    /// The last one whose operation is beyond the known ones.
    rare: Option<Function<'j>>,
    text: String,
}

impl<'j> Calls<'j> {
    pub(super) fn new(job: &'j Job<'j>) -> Calls<'j> {
        Calls {
            job,
            known: Vec::new(),
            rare: None,
            text: String::new(),
        }
    }

    /// Writes a call, or an event that is like one.
    pub(super) fn put<W: io::Write>(
        &mut self,
        out: &mut Emit<W>,
        record: &Api,
        words: &[u8],
    ) -> io::Result<()> {
        let Calls {
            job,
            known,
            rare,
            text,
        } = self;
        let function = function(
            job,
            known,
            rare,
            (record.header.kind, record.header.operation),
        );
        out.begin_with(&function.begin);
        out.digits(record.correlation);
        out.piece(",\"external\":0,\"ancestor\":");
        out.digits(record.ancestor);
        out.piece("},\"start_timestamp\":");
        out.digits(record.start);
        out.piece(",\"end_timestamp\":");
        out.digits(record.end);
        out.piece(",\"thread_id\":");
        out.digits(record.tid.into());
        if function.has_arguments {
            out.next_open(",\"args\":[");
            let mut heads = function.heads.iter();
            arguments::each(function.parameters, words, text, |_, text| {
                let head = heads.next().map_or(&b""[..], Vec::as_slice);
                out.with_text(head, text)
            })?;
            out.next_close(b']');
            out.piece(",\"retval\":{\"uint64_t_retval\":");
            out.digits(record.retval);
            out.piece("}");
        }
        if function.has_stream {
            out.piece(",\"stream_id\":{\"handle\":");
            out.digits(job.index.stream(record.stream));
            out.piece("}");
        }
        out.close_object()
    }
}

/// Returns the function of an operation.
fn function<'f, 'j>(
    job: &'j Job<'j>,
    known: &'f mut Vec<Vec<Option<Box<Function<'j>>>>>,
    rare: &'f mut Option<Function<'j>>,
    (kind, operation): (u8, u32),
) -> &'f Function<'j> {
    let make = || Function::new(job, kind, operation);
    let (of, place) = (usize::from(kind), operation as usize);
    if place >= MOST_KNOWN {
        return rare.insert(make());
    }
    if known.len() <= of {
        known.resize_with(of + 1, Vec::new);
    }
    let Some(functions) = known.get_mut(of) else {
        return rare.insert(make());
    };
    if functions.len() <= place {
        functions.resize_with(place + 1, || None);
    }
    match functions.get_mut(place) {
        Some(function) => function.get_or_insert_with(|| Box::new(make())),
        None => rare.insert(make()),
    }
}

//! The arguments of a call, one by one, with type, name and value as text. The call comes from a
//! HIP record, or is being reported to a tool.

use crate::ended::Ended;
use crate::status::Status;
use midair_abi::constants as c;
use midair_abi::members::sdk_name;
use midair_abi::records::{CallbackRecord, HipApiExt, RecordHeader, RocdecodeApiExt};
use midair_abi::tables::{Class, Parameter};
use midair_record::event::kind;
use midair_sdk_hot::callbacks;
use midair_sdk_hot::functions::function_of;
use midair_sdk_hot::markers;
use midair_tool_call::{Thrown, call};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// `rocprofiler_buffer_tracing_operation_args_cb_t`: kind, operation, number of the argument, its
/// address, its levels of indirection, type, name and value as text, the tool's data. A result
/// other than 0 ends the iteration. The texts live until the callback returns.
pub type ArgumentCallback = unsafe extern "C-unwind" fn(
    c_int,
    c_int,
    u32,
    *const c_void,
    i32,
    *const c_char,
    *const c_char,
    *const c_char,
    *mut c_void,
) -> c_int;

/// `rocprofiler_callback_tracing_operation_args_cb_t`: as [`ArgumentCallback`], and before the
/// tool's data the levels of indirection through which the value was read.
pub type CallArgumentCallback = unsafe extern "C-unwind" fn(
    c_int,
    c_int,
    u32,
    *const c_void,
    i32,
    *const c_char,
    *const c_char,
    *const c_char,
    i32,
    *mut c_void,
) -> c_int;

/// An argument as text.
struct ArgumentText {
    number: u32,
    address: *const c_void,
    indirection: i32,
    ty: CString,
    name: CString,
    value: CString,
    /// How many levels of indirection `value` was read through.
    read: i32,
}

/// Calls back for each argument of a record of one of the kinds with arguments.
///
/// # Errors
/// [`Status::KIND_NOT_FOUND`] for another kind, [`Status::OPERATION_NOT_FOUND`] for an unknown
/// operation.
///
/// # Safety
/// `callback` must be of its type; the payload is a record of the header's kind.
pub unsafe fn iterate(
    record: &RecordHeader,
    callback: ArgumentCallback,
    data: *mut c_void,
) -> Result<(), Ended> {
    let theirs = record.kind as c_int;
    let (record_kind, operation, arguments) = match theirs {
        c::ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT
        | c::ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API_EXT => {
            // SAFETY: the caller promises a record of this kind.
            let call = unsafe { &*record.payload.cast::<HipApiExt>() };
            let ours = if theirs == c::ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT {
                kind::HIP_RUNTIME_API_EXT
            } else {
                kind::HIP_COMPILER_API_EXT
            };
            (ours, call.operation, &call.args[..])
        }
        c::ROCPROFILER_BUFFER_TRACING_ROCDECODE_API_EXT => {
            // SAFETY: the caller promises a record of this kind.
            let call = unsafe { &*record.payload.cast::<RocdecodeApiExt>() };
            (kind::ROCDECODE_API_EXT, call.operation, &call.args[..])
        }
        _ => return Err(Status::KIND_NOT_FOUND.into()),
    };
    each(record_kind, operation, arguments, false, |argument| {
        // SAFETY: the caller promises the callback's type. Address and texts live until the call
        // returns.
        call(&[], || unsafe {
            callback(
                theirs,
                operation,
                argument.number,
                argument.address,
                argument.indirection,
                argument.ty.as_ptr(),
                argument.name.as_ptr(),
                argument.value.as_ptr(),
                data,
            )
        })
    })
}

/// Calls back for each argument of a call that is being reported to a tool. Pointers are not
/// followed, except to ROCTx's texts where `levels` allows it, since other pointers of the
/// application may be invalid.
///
/// # Errors
/// As [`iterate`]; [`Status::INVALID_ARGUMENT`] without a payload.
///
/// # Safety
/// `callback` must be of its type. `record` must be one that we passed to a function of a tool
/// which has not returned.
pub unsafe fn iterate_call(
    record: &CallbackRecord,
    callback: CallArgumentCallback,
    levels: i32,
    data: *mut c_void,
) -> Result<(), Ended> {
    let record_kind = callbacks::record_kind(record.kind).ok_or(Status::KIND_NOT_FOUND)?;
    if record.payload.is_null() || !record.payload.cast::<u64>().is_aligned() {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    let layout = callbacks::layout(record_kind);
    // SAFETY: the payload of these kinds has that many words.
    let words = unsafe { std::slice::from_raw_parts(record.payload.cast::<u64>(), layout.words) };
    let arguments = words.get(1..=layout.arguments).unwrap_or_default();
    each(
        record_kind,
        record.operation,
        arguments,
        levels > 0,
        |argument| {
            // SAFETY: the caller promises the callback's type. Address and texts live until the
            // call returns.
            call(&[], || unsafe {
                callback(
                    record.kind,
                    record.operation,
                    argument.number,
                    argument.address,
                    argument.indirection,
                    argument.ty.as_ptr(),
                    argument.name.as_ptr(),
                    argument.value.as_ptr(),
                    argument.read,
                    data,
                )
            })
        },
    )
}

fn each(
    record_kind: u8,
    operation: i32,
    arguments: &[u64],
    read_texts: bool,
    mut callback: impl FnMut(&ArgumentText) -> Result<c_int, Thrown>,
) -> Result<(), Ended> {
    let operation = u32::try_from(operation).map_err(|_| Status::OPERATION_NOT_FOUND)?;
    let function = function_of(record_kind, operation).ok_or(Status::OPERATION_NOT_FOUND)?;
    let bytes: Vec<u8> = arguments
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    for (number, parameter) in (0..).zip(function.parameters) {
        let from = usize::from(parameter.args_offset);
        // An argument that does not fit into AMD's union was not stored.
        let Some(value) = bytes.get(from..from + usize::from(parameter.ty.size)) else {
            break;
        };
        let text =
            (read_texts && markers::is_marker(record_kind) && parameter.ty.c == "const char *")
                .then(|| text_at(value))
                .flatten();
        let read = i32::from(text.is_some());
        let value =
            text.unwrap_or_else(|| CString::new(value_text(parameter, value)).unwrap_or_default());
        let argument = ArgumentText {
            number,
            address: arguments.as_ptr().cast::<u8>().wrapping_add(from).cast(),
            indirection: parameter.ty.c.matches('*').count() as i32,
            ty: CString::new(parameter.ty.c).unwrap_or_default(),
            name: CString::new(sdk_name(&function.name, parameter.name)).unwrap_or_default(),
            value,
            read,
        };
        if callback(&argument)? != 0 {
            break;
        }
    }
    Ok(())
}

/// Returns the text that a value points to; `None` for null.
fn text_at(value: &[u8]) -> Option<CString> {
    let address = u64::from_ne_bytes(value.try_into().ok()?);
    let text: *const c_char = std::ptr::with_exposed_provenance(address as usize);
    // SAFETY: the pointer is to a message of ROCTx. The application's call keeps it alive while the
    // call is reported to the tool.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}

/// Returns a value as text: integers and enums in decimal, addresses in hexadecimal, structs as
/// their numbers.
fn value_text(parameter: &Parameter, bytes: &[u8]) -> String {
    let mut extended = [0; 8];
    for (to, from) in extended.iter_mut().zip(bytes) {
        *to = *from;
    }
    let word = u64::from_ne_bytes(extended);
    match (parameter.ty.class, parameter.ty.size) {
        (Class::Int, 4) => (word as i32).to_string(),
        (Class::Int, _) => (word as i64).to_string(),
        (Class::Float, _) => f32::from_bits(word as u32).to_string(),
        (Class::Pointer | Class::Function, _) => format!("{word:#x}"),
        (Class::Struct, size) => {
            // dim3 consists of 4-byte numbers. The others consist of 8-byte numbers, or of bytes
            // that tell a reader nothing.
            let step = if size % 8 == 0 { 8 } else { 4 };
            let numbers = bytes.chunks(step).map(|chunk| {
                let mut number = [0; 8];
                for (to, from) in number.iter_mut().zip(chunk) {
                    *to = *from;
                }
                u64::from_ne_bytes(number).to_string()
            });
            format!("{{{}}}", numbers.collect::<Vec<_>>().join(", "))
        }
        _ => word.to_string(),
    }
}

//! The arguments of a HIP call's record, one by one, with types, names and values in words.

use crate::convert::hip_function;
use crate::status::Status;
use midair_abi::constants as c;
use midair_abi::records::HipApiExt;
use midair_abi::tables::{Class, Parameter};
use midair_record::event::kind;
use std::ffi::{CString, c_char, c_int, c_void};

/// `rocprofiler_buffer_tracing_operation_args_cb_t`: kind, operation, number of the argument, its address, its levels of
/// indirection, type, name and value in words, the tool's data. Not zero ends the iteration; the texts live until it returns.
pub type ArgumentCallback = unsafe extern "C" fn(
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

/// Calls back for each argument of a record of one of the kinds with arguments.
///
/// # Errors
/// [`Status::KIND_NOT_FOUND`] for another kind, [`Status::OPERATION_NOT_FOUND`] for an operation that is none.
///
/// # Safety
/// `callback` must be of its type.
pub unsafe fn iterate(
    record: &HipApiExt,
    callback: ArgumentCallback,
    data: *mut c_void,
) -> Result<(), Status> {
    let record_kind = match record.kind {
        c::ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT => kind::HIP_RUNTIME_API_EXT,
        c::ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API_EXT => kind::HIP_COMPILER_API_EXT,
        _ => return Err(Status::KIND_NOT_FOUND),
    };
    let operation = u32::try_from(record.operation).map_err(|_| Status::OPERATION_NOT_FOUND)?;
    let function = hip_function(record_kind, operation).ok_or(Status::OPERATION_NOT_FOUND)?;
    let bytes: Vec<u8> = record
        .args
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    for (number, parameter) in (0..).zip(function.parameters) {
        let from = usize::from(parameter.args_offset);
        // An argument that AMD's union has no room for was not kept.
        let Some(value) = bytes.get(from..from + usize::from(parameter.ty.size)) else {
            break;
        };
        let texts = [
            parameter.ty.c.to_owned(),
            parameter.name.to_owned(),
            words(parameter, value),
        ];
        let [ty, name, value] = texts.map(|text| CString::new(text).unwrap_or_default());
        let address = record.args.as_ptr().cast::<u8>().wrapping_add(from).cast();
        let indirection = parameter.ty.c.matches('*').count() as i32;
        // SAFETY: the caller's promise; address and texts live until the call returns.
        let answer = unsafe {
            callback(
                record.kind,
                record.operation,
                number,
                address,
                indirection,
                ty.as_ptr(),
                name.as_ptr(),
                value.as_ptr(),
                data,
            )
        };
        if answer != 0 {
            break;
        }
    }
    Ok(())
}

/// A value in words: integers and enums in decimal, addresses in hexadecimal, structs as their numbers.
fn words(parameter: &Parameter, bytes: &[u8]) -> String {
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
            // dim3 is made of 4-byte numbers, the others of 8-byte ones or of bytes that mean nothing to a reader.
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

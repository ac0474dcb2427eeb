use crate::elf::image;
use crate::machine::{Block, Loaded, Machine, Symbol, answer, with};
use crate::signals::put;
use crate::{Status, status, texts};
use std::ffi::{CStr, c_char, c_void};

type EachSymbol = unsafe extern "C" fn(u64, u64, *mut c_void) -> Status;
type EachAgentSymbol = unsafe extern "C" fn(u64, u64, u64, *mut c_void) -> Status;
type EachExecutable = unsafe extern "C" fn(u64, *mut c_void) -> Status;

/// Writes the value of an attribute, given as bytes.
///
/// # Safety
/// `out` must be null, or have room for the attribute's type, which has this many bytes.
unsafe fn put_bytes(out: *mut c_void, bytes: &[u8]) -> Result<(), Status> {
    if out.is_null() {
        return Err(status::INVALID_ARGUMENT);
    }
    // SAFETY: `out` is not null, and the caller promises that it has room for these bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len()) };
    Ok(())
}

fn ok(status: Status) -> Result<(), Status> {
    if status == status::SUCCESS {
        Ok(())
    } else {
        Err(status)
    }
}

pub unsafe extern "C" fn hsa_code_object_reader_create_from_memory(
    bytes: *const c_void,
    size: usize,
    out: *mut u64,
) -> Status {
    answer(with(|machine| {
        if bytes.is_null() || size == 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        let reader = machine.fresh();
        let at = bytes.expose_provenance() as u64;
        let block = Block {
            at,
            bytes: size as u64,
        };
        machine.readers.insert(reader, block);
        // SAFETY: the caller promises that the out pointer is null or writable.
        ok(unsafe { put(out, reader) })
    }))
}

pub extern "C" fn hsa_code_object_reader_destroy(reader: u64) -> Status {
    answer(with(|machine| {
        let found = machine.readers.remove(&reader);
        found.map(|_| ()).ok_or(status::INVALID_CODE_OBJECT)
    }))
}

pub unsafe extern "C" fn hsa_executable_create_alt(
    _profile: u32,
    _rounding: u32,
    _options: *const c_char,
    out: *mut u64,
) -> Status {
    answer(with(|machine| {
        let executable = machine.fresh();
        machine.executables.insert(executable, false);
        // SAFETY: the caller promises that the out pointer is null or writable.
        ok(unsafe { put(out, executable) })
    }))
}

/// Loads a code object: its segments go into fresh memory, its kernels become symbols.
fn load(machine: &mut Machine, executable: u64, agent: u64, file: Block) -> Result<u64, Status> {
    let frozen = machine.executables.get(&executable);
    if frozen.copied().ok_or(status::INVALID_EXECUTABLE)? {
        return Err(status::INVALID_EXECUTABLE);
    }
    machine.agent(agent).ok_or(status::INVALID_AGENT)?;
    let from = std::ptr::with_exposed_provenance::<u8>(file.at as usize);
    // SAFETY: these are the bytes that the application passed to the reader, and keeps until it
    // destroys the reader.
    let bytes = unsafe { std::slice::from_raw_parts(from, file.bytes as usize) };
    let image = image(bytes).ok_or(status::INVALID_CODE_OBJECT)?;
    let block = Block::map(image.size.next_multiple_of(4096)).ok_or(status::OUT_OF_RESOURCES)?;
    for (address, offset, size) in &image.segments {
        let to = std::ptr::with_exposed_provenance_mut::<u8>((block.at + address) as usize);
        // SAFETY: `image` has checked that the segment is in the file and, with its size, in the
        // block.
        unsafe { std::ptr::copy_nonoverlapping(from.add(*offset as usize), to, *size as usize) };
    }
    for kernel in image.kernels {
        let handle = machine.fresh();
        let object = block.at + kernel.address;
        let symbol = Symbol {
            kernel,
            object,
            agent,
            executable,
        };
        machine.symbols.insert(handle, symbol);
    }
    let handle = machine.fresh();
    let loaded = Loaded {
        executable,
        agent,
        block,
        file,
    };
    machine.objects.insert(handle, loaded);
    Ok(handle)
}

pub unsafe extern "C" fn hsa_executable_load_agent_code_object(
    executable: u64,
    agent: u64,
    reader: u64,
    _options: *const c_char,
    out: *mut u64,
) -> Status {
    answer(with(|machine| {
        let file = machine.readers.get(&reader).copied();
        let handle = load(
            machine,
            executable,
            agent,
            file.ok_or(status::INVALID_CODE_OBJECT)?,
        )?;
        // Few callers want the handle.
        if out.is_null() {
            return Ok(());
        }
        // SAFETY: the caller promises that the out pointer is null or writable.
        ok(unsafe { put(out, handle) })
    }))
}

pub unsafe extern "C" fn hsa_executable_freeze(executable: u64, _options: *const c_char) -> Status {
    answer(with(|machine| {
        let frozen = machine.executables.get_mut(&executable);
        *frozen.ok_or(status::INVALID_EXECUTABLE)? = true;
        Ok(())
    }))
}

pub unsafe extern "C" fn hsa_executable_get_info(
    executable: u64,
    which: u32,
    value: *mut c_void,
) -> Status {
    answer(with(|machine| {
        let frozen = machine.executables.get(&executable);
        let frozen = frozen.copied().ok_or(status::INVALID_EXECUTABLE)?;
        let word: u32 = match which {
            // hsa_profile_t: full.
            1 => 1,
            // hsa_executable_state_t: 0 unfrozen, 1 frozen.
            2 => frozen.into(),
            _ => return Err(status::INVALID_ARGUMENT),
        };
        // SAFETY: the caller's buffer has room for the attribute's type, an enum.
        unsafe { put_bytes(value, &word.to_ne_bytes()) }
    }))
}

pub unsafe extern "C" fn hsa_executable_validate(executable: u64, result: *mut u32) -> Status {
    answer(with(|machine| {
        machine
            .executables
            .get(&executable)
            .ok_or(status::INVALID_EXECUTABLE)?;
        // SAFETY: the caller promises that the out pointer is null or writable.
        ok(unsafe { put(result, 0) })
    }))
}

pub extern "C" fn hsa_executable_destroy(executable: u64) -> Status {
    answer(with(|machine| {
        machine
            .executables
            .remove(&executable)
            .ok_or(status::INVALID_EXECUTABLE)?;
        machine
            .symbols
            .retain(|_, symbol| symbol.executable != executable);
        machine.objects.retain(|_, object| {
            let gone = object.executable == executable;
            if gone {
                object.block.unmap();
            }
            !gone
        });
        Ok(())
    }))
}

/// Returns the handles of an executable's symbols, each with its agent.
fn symbols_of(executable: u64) -> Result<Vec<(u64, u64)>, Status> {
    with(|machine| {
        machine
            .executables
            .get(&executable)
            .ok_or(status::INVALID_EXECUTABLE)?;
        let symbols = machine.symbols.iter();
        Ok(symbols
            .filter(|(_, symbol)| symbol.executable == executable)
            .map(|(handle, symbol)| (*handle, symbol.agent))
            .collect())
    })
}

pub unsafe extern "C" fn hsa_executable_iterate_symbols(
    executable: u64,
    callback: Option<EachSymbol>,
    data: *mut c_void,
) -> Status {
    let (Some(callback), symbols) = (callback, symbols_of(executable)) else {
        return status::INVALID_ARGUMENT;
    };
    answer(symbols.and_then(|symbols| {
        for (symbol, _) in symbols {
            // SAFETY: this calls the caller's function with the caller's data, as its type
            // requires.
            ok(unsafe { callback(executable, symbol, data) })?;
        }
        Ok(())
    }))
}

pub unsafe extern "C" fn hsa_executable_iterate_agent_symbols(
    executable: u64,
    agent: u64,
    callback: Option<EachAgentSymbol>,
    data: *mut c_void,
) -> Status {
    let (Some(callback), symbols) = (callback, symbols_of(executable)) else {
        return status::INVALID_ARGUMENT;
    };
    answer(symbols.and_then(|symbols| {
        for (symbol, of) in symbols {
            if of == agent {
                // SAFETY: this calls the caller's function with the caller's data, as its type
                // requires.
                ok(unsafe { callback(executable, agent, symbol, data) })?;
            }
        }
        Ok(())
    }))
}

pub unsafe extern "C" fn hsa_executable_get_symbol_by_name(
    executable: u64,
    name: *const c_char,
    agent: *const u64,
    out: *mut u64,
) -> Status {
    if name.is_null() {
        return status::INVALID_ARGUMENT;
    }
    // SAFETY: the name is the caller's C string; the agent is the caller's, or null for any.
    let (name, agent) = unsafe { (CStr::from_ptr(name), agent.as_ref().copied()) };
    answer(with(|machine| {
        let found = machine.symbols.iter().find(|(_, symbol)| {
            symbol.executable == executable
                && symbol.kernel.name.as_bytes() == name.to_bytes()
                && agent.is_none_or(|agent| agent == symbol.agent)
        });
        let (handle, _) = found.ok_or(status::INVALID_SYMBOL_NAME)?;
        // SAFETY: the caller promises that the out pointer is null or writable.
        ok(unsafe { put(out, *handle) })
    }))
}

pub unsafe extern "C" fn hsa_executable_symbol_get_info(
    handle: u64,
    which: u32,
    value: *mut c_void,
) -> Status {
    answer(with(|machine| {
        let symbol = machine
            .symbols
            .get(&handle)
            .ok_or(status::INVALID_SYMBOL_NAME)?;
        // The descriptor's first three words: group segment, private segment, kernel arguments.
        let word = |index: u64| {
            let at = std::ptr::with_exposed_provenance::<u32>((symbol.object + 4 * index) as usize);
            // SAFETY: `elf::image` has checked that the descriptor's 64 bytes are in the loaded
            // block.
            unsafe { at.read_unaligned() }
        };
        let name = &symbol.kernel.name;
        let bytes = match which {
            // A kernel.
            0 => 1_u32.to_ne_bytes().to_vec(),
            1 => texts::reported(handle, name),
            2 => texts::written(name),
            3 => 0_u32.to_ne_bytes().to_vec(),
            4 => Vec::new(),
            5 => 1_u32.to_ne_bytes().to_vec(),
            11 => word(2).to_ne_bytes().to_vec(),
            12 => 64_u32.to_ne_bytes().to_vec(),
            13 => word(0).to_ne_bytes().to_vec(),
            14 => word(1).to_ne_bytes().to_vec(),
            15 => vec![0],
            17 => vec![1],
            20 => symbol.agent.to_ne_bytes().to_vec(),
            22 => symbol.object.to_ne_bytes().to_vec(),
            _ => return Err(status::INVALID_ARGUMENT),
        };
        // SAFETY: the caller's buffer has room for the attribute's type; the caller asked for a
        // name's length before.
        unsafe { put_bytes(value, &bytes) }
    }))
}

/// Returns `hsa_ven_amd_loader_1_03_pfn_t`, entry by entry.
pub fn loader_table() -> [*const c_void; 7] {
    [
        query_host_address as *const c_void,
        std::ptr::null(),
        std::ptr::null(),
        iterate_code_objects as *const c_void,
        code_object_info as *const c_void,
        std::ptr::null(),
        iterate_executables as *const c_void,
    ]
}

unsafe extern "C" fn query_host_address(device: *const c_void, out: *mut *const c_void) -> Status {
    answer(with(|machine| {
        let at = device.addr() as u64;
        let lies = |object: &Loaded| at.wrapping_sub(object.block.at) < object.block.bytes;
        if !machine.objects.values().any(lies) {
            return Err(status::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises that the out pointer is null or writable.
        ok(unsafe { put(out, device) })
    }))
}

unsafe extern "C" fn iterate_executables(
    callback: Option<EachExecutable>,
    data: *mut c_void,
) -> Status {
    let Some(callback) = callback else {
        return status::INVALID_ARGUMENT;
    };
    let all = with(|machine| Ok(machine.executables.keys().copied().collect::<Vec<_>>()));
    answer(all.and_then(|all| {
        for executable in all {
            // SAFETY: this calls the caller's function with the caller's data, as its type
            // requires.
            ok(unsafe { callback(executable, data) })?;
        }
        Ok(())
    }))
}

unsafe extern "C" fn iterate_code_objects(
    executable: u64,
    callback: Option<EachSymbol>,
    data: *mut c_void,
) -> Status {
    let Some(callback) = callback else {
        return status::INVALID_ARGUMENT;
    };
    let objects = with(|machine| {
        let objects = machine.objects.iter();
        Ok(objects
            .filter(|(_, object)| object.executable == executable)
            .map(|(handle, _)| *handle)
            .collect::<Vec<_>>())
    });
    answer(objects.and_then(|objects| {
        for object in objects {
            // SAFETY: this calls the caller's function with the caller's data, as its type
            // requires.
            ok(unsafe { callback(executable, object, data) })?;
        }
        Ok(())
    }))
}

unsafe extern "C" fn code_object_info(handle: u64, which: u32, value: *mut c_void) -> Status {
    answer(with(|machine| {
        let object = machine
            .objects
            .get(&handle)
            .ok_or(status::INVALID_CODE_OBJECT)?;
        let uri = format!(
            "memory://{}#offset=0x{:x}&size={}",
            std::process::id(),
            object.file.at,
            object.file.bytes
        );
        let bytes = match which {
            1 => object.executable.to_ne_bytes().to_vec(),
            2 => 1_u32.to_ne_bytes().to_vec(),
            3 => object.agent.to_ne_bytes().to_vec(),
            // In memory.
            4 => 2_u32.to_ne_bytes().to_vec(),
            5 => object.file.at.to_ne_bytes().to_vec(),
            6 => object.file.bytes.to_ne_bytes().to_vec(),
            // The file's addresses start at 0, so the load base is what has to be added to them.
            8 | 9 => object.block.at.to_ne_bytes().to_vec(),
            10 => object.block.bytes.to_ne_bytes().to_vec(),
            11 => texts::reported(handle, &uri),
            12 => texts::written(&uri),
            _ => return Err(status::INVALID_ARGUMENT),
        };
        // SAFETY: the caller's buffer has room for the attribute's type; the caller asked for the
        // text's length before.
        unsafe { put_bytes(value, &bytes) }
    }))
}

//! Modules and kernels, which the program registers or which are read from a code object.

use crate::runtime::{Device, checked, lock};
use crate::{Error, error, hsa};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_void};
use std::sync::Mutex;

/// A module that a program registers or loads.
#[derive(Debug, Default)]
pub struct Module {
    /// Kernels' device names, in the order of registration.
    names: Mutex<Vec<String>>,
    /// Executable by device. Code objects stay in memory as long as the process, as in HIP.
    loaded: Mutex<BTreeMap<usize, u64>>,
    /// A code object that was passed in, instead of one made from the names.
    image: Option<Vec<u8>>,
    kernels: Mutex<HashMap<(usize, String), Kernel>>,
}

/// The properties of a kernel that a launch needs.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Address of its descriptor.
    pub object: u64,
    /// Bytes of its group segment.
    pub group: u32,
    /// Bytes of its private segment.
    pub private: u32,
}

/// A kernel as `hipFunction_t` or as the host function of a program.
#[derive(Debug, Clone)]
pub struct Function {
    /// Its module.
    pub module: &'static Module,
    /// Its name on the device.
    pub name: String,
}

static REGISTERED: Mutex<Option<HashMap<usize, Function>>> = Mutex::new(None);

/// Registers the kernel behind a host function.
pub fn register(host: *const c_void, function: Function) {
    lock(&function.module.names).push(function.name.clone());
    lock(&REGISTERED)
        .get_or_insert_default()
        .insert(host.addr(), function);
}

/// Returns the kernel behind a host function.
pub fn registered(host: *const c_void) -> Result<Function, Error> {
    let all = lock(&REGISTERED);
    let found = all.as_ref().and_then(|all| all.get(&host.addr()));
    found.cloned().ok_or(error::INVALID_DEVICE_FUNCTION)
}

impl Module {
    /// Creates a module from a code object.
    pub fn of_image(image: Vec<u8>) -> Module {
        Module {
            image: Some(image),
            ..Module::default()
        }
    }

    /// Returns its executable on a device, which is loaded at the first use.
    pub fn executable(&'static self, device: &Device) -> Result<u64, Error> {
        let mut loaded = lock(&self.loaded);
        if let Some(executable) = loaded.get(&device.ordinal) {
            return Ok(*executable);
        }
        let image: &'static [u8] = match &self.image {
            Some(image) => image,
            None => code_object(&lock(&self.names)).leak(),
        };
        let (mut reader, mut executable) = (0, 0);
        // SAFETY: the bytes live as long as the process, the handles are live, and the out pointers
        // are ours.
        unsafe {
            let status = hsa::hsa_code_object_reader_create_from_memory(
                image.as_ptr().cast(),
                image.len(),
                &raw mut reader,
            );
            checked(status)?;
            checked(hsa::hsa_executable_create_alt(
                1,
                0,
                std::ptr::null(),
                &raw mut executable,
            ))?;
            let status = hsa::hsa_executable_load_agent_code_object(
                executable,
                device.agent,
                reader,
                std::ptr::null(),
                std::ptr::null_mut(),
            );
            hsa::hsa_code_object_reader_destroy(reader);
            checked(status).map_err(|_| error::INVALID_IMAGE)?;
            checked(hsa::hsa_executable_freeze(executable, std::ptr::null()))?;
        }
        loaded.insert(device.ordinal, executable);
        Ok(executable)
    }

    /// Unloads it on all devices.
    pub fn unload(&self) {
        lock(&self.kernels).clear();
        for (_, executable) in std::mem::take(&mut *lock(&self.loaded)) {
            // SAFETY: it is our own executable, and the application promises that none of its code
            // is running.
            unsafe { hsa::hsa_executable_destroy(executable) };
        }
    }

    /// Returns one of its kernels on a device.
    pub fn kernel(&'static self, device: &Device, name: &str) -> Result<Kernel, Error> {
        let key = (device.ordinal, name.to_owned());
        if let Some(kernel) = lock(&self.kernels).get(&key) {
            return Ok(*kernel);
        }
        let executable = self.executable(device)?;
        let symbol_name = CString::new(format!("{name}.kd")).map_err(|_| error::NOT_FOUND)?;
        let mut symbol = 0;
        // SAFETY: executable and agent are live, the name is a C string, and the out pointer is
        // ours.
        let status = unsafe {
            hsa::hsa_executable_get_symbol_by_name(
                executable,
                symbol_name.as_ptr(),
                &raw const device.agent,
                &raw mut symbol,
            )
        };
        checked(status).map_err(|_| error::NOT_FOUND)?;
        let get = |attribute: u32| {
            let mut value = 0_u64;
            // SAFETY: the symbol is live, and eight bytes have room for any of the attributes used
            // here.
            unsafe {
                hsa::hsa_executable_symbol_get_info(symbol, attribute, (&raw mut value).cast())
            };
            value
        };
        let kernel = Kernel {
            object: get(22),
            group: get(13) as u32,
            private: get(14) as u32,
        };
        lock(&self.kernels).insert(key, kernel);
        Ok(kernel)
    }
}

/// Offset of the first descriptor: after the headers, at the start of a cache line.
const DESCRIPTORS: usize = 256;
/// The size of a descriptor in bytes.
const DESCRIPTOR: usize = 64;

/// Returns an ELF code object for gfx942 with descriptors of these kernels, and without code, since
/// nothing here runs code.
fn code_object(names: &[String]) -> Vec<u8> {
    let end = DESCRIPTORS + names.len() * DESCRIPTOR;
    let mut texts = vec![0_u8];
    // The first symbol is empty.
    let mut symbols = vec![0_u8; 24];
    let mut file = vec![0_u8; DESCRIPTORS];
    for (index, name) in names.iter().enumerate() {
        let at = (DESCRIPTORS + index * DESCRIPTOR) as u64;
        symbols.extend((texts.len() as u32).to_le_bytes());
        // An object, visible everywhere, in section 1.
        symbols.extend([0x11, 3, 1, 0]);
        symbols.extend(at.to_le_bytes());
        symbols.extend((DESCRIPTOR as u64).to_le_bytes());
        texts.extend(name.as_bytes());
        texts.extend(b".kd\0");
        file.extend(descriptor(name));
    }
    let symbols_at = file.len();
    file.extend(&symbols);
    let texts_at = file.len();
    file.extend(&texts);
    let names_at = file.len();
    let section_names = b"\0.rodata\0.symtab\0.strtab\0.shstrtab\0";
    file.extend(section_names);
    file.resize(file.len().next_multiple_of(8), 0);
    let sections_at = file.len();
    // name, type, flags, address, offset, size, link, info, alignment, entry size
    let sections: [[u64; 10]; 5] = [
        [0; 10],
        [1, 1, 2, 256, 256, (end - DESCRIPTORS) as u64, 0, 0, 64, 0],
        [
            9,
            2,
            0,
            0,
            symbols_at as u64,
            symbols.len() as u64,
            3,
            1,
            8,
            24,
        ],
        [17, 3, 0, 0, texts_at as u64, texts.len() as u64, 0, 0, 1, 0],
        [
            25,
            3,
            0,
            0,
            names_at as u64,
            section_names.len() as u64,
            0,
            0,
            1,
            0,
        ],
    ];
    for [
        name,
        kind,
        flags,
        address,
        offset,
        size,
        link,
        info,
        align,
        entry,
    ] in sections
    {
        file.extend((name as u32).to_le_bytes());
        file.extend((kind as u32).to_le_bytes());
        for word in [flags, address, offset, size] {
            file.extend(word.to_le_bytes());
        }
        file.extend((link as u32).to_le_bytes());
        file.extend((info as u32).to_le_bytes());
        file.extend(align.to_le_bytes());
        file.extend(entry.to_le_bytes());
    }
    let mut header = Vec::new();
    // 64 bits, little-endian, version 1, AMD's HSA, code object version 5.
    header.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 64, 3, 0, 0, 0, 0, 0, 0, 0]);
    // A shared object for AMDGPU.
    header.extend(3_u16.to_le_bytes());
    header.extend(224_u16.to_le_bytes());
    header.extend(1_u32.to_le_bytes());
    for word in [0, 64, sections_at as u64] {
        header.extend(word.to_le_bytes());
    }
    // gfx942.
    header.extend(0x4c_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 5, 4] {
        header.extend(half.to_le_bytes());
    }
    // One readable segment, from 0 to the last descriptor.
    header.extend(1_u32.to_le_bytes());
    header.extend(4_u32.to_le_bytes());
    for word in [0, 0, 0, end as u64, end as u64, 4096] {
        header.extend(word.to_le_bytes());
    }
    file.splice(..header.len(), header);
    file
}

/// Returns a descriptor (LLVM's AMDGPU usage guide, "Kernel Descriptor") with a kernel's usual
/// numbers, which differ a little for each name.
fn descriptor(name: &str) -> [u8; DESCRIPTOR] {
    let mut bytes = [0; DESCRIPTOR];
    let variety = name.bytes().map(u32::from).sum::<u32>();
    let mut put = |at: usize, word: u32| {
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    };
    put(0, variety % 3 * 4096);
    put(8, 32);
    // Accumulation registers start at (field + 1) * 4. There are (field + 1) * 8 vector registers
    // and (field / 2 + 1) * 16 scalar registers.
    put(44, 7 + variety % 4 * 2);
    put(48, (3 + variety % 6) | (variety % 5 * 2) << 6);
    bytes
}

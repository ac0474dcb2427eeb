//! The runtime's loader extension, which lists executables and their code objects.

use super::{Number, Status, Texts, Untold, listed, number, take, take_second};
use midair_sdk_hot::wrappers::original;
use std::ffi::c_void;

/// `HSA_EXTENSION_AMD_LOADER`.
const LOADER: u16 = 0x201;
/// `HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_URI_LENGTH` and `..._URI`.
const URI_LENGTH: u32 = 11;
const URI: u32 = 12;

type Each = unsafe extern "C" fn(u64, *mut c_void) -> Status;
type EachOf = unsafe extern "C" fn(u64, u64, *mut c_void) -> Status;
type Executables = unsafe extern "C" fn(Each, *mut c_void) -> Status;
type CodeObjects = unsafe extern "C" fn(u64, EachOf, *mut c_void) -> Status;
type CodeObjectInfo = unsafe extern "C" fn(u64, u32, *mut c_void) -> Status;
type HostAddress = unsafe extern "C" fn(*const c_void, *mut *const c_void) -> Status;

/// `hsa_ven_amd_loader_1_03_pfn_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Table {
    query_host_address: Option<HostAddress>,
    query_segment_descriptors: usize,
    query_executable: usize,
    iterate_code_objects: Option<CodeObjects>,
    code_object_info: Option<CodeObjectInfo>,
    create_from_file: usize,
    iterate_executables: Option<Executables>,
}

/// The functions of the runtime's loader that we need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loader {
    executables: Executables,
    code_objects: CodeObjects,
    code_object_info: CodeObjectInfo,
    host_address: Option<HostAddress>,
}

impl Loader {
    /// Asks the runtime for the functions; `None` if it lacks one of them.
    pub(crate) fn ask() -> Option<Loader> {
        let mut table = Table::default();
        // SAFETY: this is the runtime's own query, with a buffer of the size that is passed.
        let status = unsafe {
            original::hsa_system_get_major_extension_table(
                LOADER,
                1,
                size_of::<Table>() as u64,
                (&raw mut table).cast(),
            )
        };
        (status == 0).then_some(Loader {
            executables: table.iterate_executables?,
            code_objects: table.iterate_code_objects?,
            code_object_info: table.code_object_info?,
            host_address: table.query_host_address,
        })
    }

    /// Returns the executables.
    pub(crate) fn executables(&self) -> Vec<u64> {
        // SAFETY: this is the runtime's own query, and the function has its type.
        listed(|data| unsafe { (self.executables)(take, data) }).0
    }

    /// Returns the code objects of an executable.
    ///
    /// # Safety
    /// The executable is not destroyed during the call.
    pub(crate) unsafe fn code_objects(&self, executable: u64) -> Vec<u64> {
        // SAFETY: the caller promises a live executable, and the function has the query's type.
        listed(|data| unsafe { (self.code_objects)(executable, take_second, data) }).0
    }

    /// Returns an attribute of a fixed size of a code object.
    ///
    /// # Safety
    /// The code object is one of an executable that is not destroyed during the call.
    pub(crate) unsafe fn code_object<T: Number>(&self, object: u64, attribute: u32) -> Option<T> {
        // SAFETY: the caller promises a live code object, and `to` has room for any attribute of a
        // fixed size.
        number(|to| unsafe { (self.code_object_info)(object, attribute, to) })
    }

    /// Returns the URI of a code object.
    ///
    /// # Errors
    /// The runtime does not tell the URI, or it is too long.
    ///
    /// # Safety
    /// As [`Loader::code_object`].
    pub(crate) unsafe fn uri<'t>(
        &self,
        object: u64,
        texts: &'t mut Texts,
    ) -> Result<&'t [u8], Untold> {
        // SAFETY: the caller promises a live code object.
        let len = || unsafe { self.code_object::<u32>(object, URI_LENGTH) };
        texts.ask(len, |to| {
            // SAFETY: the caller promises a live code object; `to` has more room than the URI has
            // bytes.
            unsafe { (self.code_object_info)(object, URI, to) }
        })
    }

    /// Returns where the host has a copy of loaded memory of the device.
    pub(crate) fn host_address(&self, device: u64) -> Option<*const c_void> {
        let query = self.host_address?;
        let mut host: *const c_void = std::ptr::null();
        let device = std::ptr::with_exposed_provenance(device as usize);
        // SAFETY: this is the loader's own query with a valid out pointer. It looks the address up,
        // and returns an error if it knows nothing there.
        let status = unsafe { query(device, &raw mut host) };
        (status == 0 && !host.is_null()).then_some(host)
    }
}

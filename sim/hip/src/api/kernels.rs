use super::put;
use crate::code::{Function, Module, register, registered};
use crate::runtime::{answer, current, lock};
use crate::stream::{Launch, Stream};
use crate::{Error, error};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;

/// `dim3`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

impl Dim3 {
    fn axes(self) -> [u32; 3] {
        [self.x, self.y, self.z]
    }
}

fn launch(
    function: &Function,
    groups: [u32; 3],
    items: [u32; 3],
    shared: usize,
    stream: *const Stream,
) -> Result<(), Error> {
    let count: u64 = items.iter().map(|axis| u64::from(*axis)).product();
    if groups.contains(&0) || !(1..=1024).contains(&count) {
        return Err(error::INVALID_VALUE);
    }
    let stream = Stream::of(stream)?;
    let kernel = function.module.kernel(stream.device, &function.name)?;
    stream.launch(Launch {
        kernel_object: kernel.object,
        groups,
        items,
        group_segment: kernel.group + shared as u32,
        private_segment: kernel.private,
    })
}

pub unsafe extern "C" fn hipLaunchKernel(
    host: *const c_void,
    groups: Dim3,
    items: Dim3,
    _args: *mut *mut c_void,
    shared: usize,
    stream: *const Stream,
) -> Error {
    answer(
        registered(host)
            .and_then(|function| launch(&function, groups.axes(), items.axes(), shared, stream)),
    )
}

pub unsafe extern "C" fn __hipRegisterFatBinary(_wrapper: *const c_void) -> *mut *mut c_void {
    // The contents are code for a device, and nothing here runs code: names come with each
    // function.
    let module: &'static mut Module = Box::leak(Box::default());
    std::ptr::from_mut(module).cast()
}

pub extern "C" fn __hipUnregisterFatBinary(_modules: *mut *mut c_void) {
    // Nothing to do: this is called at the program's end.
}

pub unsafe extern "C" fn __hipRegisterFunction(
    modules: *mut *mut c_void,
    host: *const c_void,
    _device_function: *mut c_char,
    name: *const c_char,
    _limit: u32,
    _tid: *mut c_void,
    _bid: *mut c_void,
    _block: *mut c_void,
    _grid: *mut c_void,
    _size: *mut i32,
) {
    // SAFETY: it is what __hipRegisterFatBinary returned, or null.
    let Some(module) = (unsafe { modules.cast::<Module>().as_ref() }) else {
        return;
    };
    if name.is_null() {
        return;
    }
    // SAFETY: it is a C string of the program.
    let name = unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned();
    register(host, Function { module, name });
}

/// The configuration `<<<groups, items, shared, stream>>>`, between the compiler's two calls.
type Configuration = (Dim3, Dim3, usize, *const Stream);

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

pub unsafe extern "C" fn __hipPushCallConfiguration(
    groups: Dim3,
    items: Dim3,
    shared: usize,
    stream: *const Stream,
) -> Error {
    CONFIGURATIONS.with_borrow_mut(|all| all.push((groups, items, shared, stream)));
    error::SUCCESS
}

pub unsafe extern "C" fn __hipPopCallConfiguration(
    groups: *mut Dim3,
    items: *mut Dim3,
    shared: *mut usize,
    stream: *mut *const Stream,
) -> Error {
    let top = CONFIGURATIONS.with_borrow_mut(Vec::pop);
    answer(top.ok_or(error::INVALID_VALUE).and_then(|top| {
        // SAFETY: they are the compiler's out pointers.
        unsafe {
            put(groups, top.0)?;
            put(items, top.1)?;
            put(shared, top.2)?;
            put(stream, top.3)
        }
    }))
}

/// The modules that the program loaded, and the functions that it asked for.
static MODULES: Mutex<Vec<&'static Module>> = Mutex::new(Vec::new());
static FUNCTIONS: Mutex<Vec<&'static Function>> = Mutex::new(Vec::new());

fn load(out: *mut *const Module, image: Vec<u8>) -> Result<(), Error> {
    let module: &'static Module = Box::leak(Box::new(Module::of_image(image)));
    module.executable(current()?)?;
    lock(&MODULES).push(module);
    // SAFETY: the application promises that its out pointer is null or writable.
    unsafe { put(out, std::ptr::from_ref(module)) }
}

pub unsafe extern "C" fn hipModuleLoad(out: *mut *const Module, path: *const c_char) -> Error {
    if path.is_null() {
        return error::INVALID_VALUE;
    }
    // SAFETY: it is a C string of the application.
    let path = unsafe { CStr::from_ptr(path) }
        .to_string_lossy()
        .into_owned();
    let image = std::fs::read(path).map_err(|_| error::NOT_FOUND);
    answer(image.and_then(|image| load(out, image)))
}

/// Returns the size of an ELF file, according to its own headers.
///
/// # Safety
/// `image` must be an ELF file in memory.
unsafe fn elf_size(image: *const u8) -> Option<usize> {
    // SAFETY: the caller promises an ELF file, which has a header of 64 bytes.
    let header = unsafe { std::slice::from_raw_parts(image, 64) };
    let word = |at: usize| {
        header
            .get(at..at + 8)?
            .try_into()
            .ok()
            .map(u64::from_le_bytes)
    };
    let half = |at: usize| {
        header
            .get(at..at + 2)?
            .try_into()
            .ok()
            .map(u16::from_le_bytes)
    };
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    // In files that compilers write, the section headers come last.
    let end = word(40)?.checked_add(u64::from(half(58)?) * u64::from(half(60)?))?;
    usize::try_from(end).ok().filter(|end| *end < 1 << 30)
}

pub unsafe extern "C" fn hipModuleLoadData(out: *mut *const Module, image: *const c_void) -> Error {
    if image.is_null() {
        return error::INVALID_VALUE;
    }
    // SAFETY: it is the application's image, which does not come with a size.
    let bytes = unsafe {
        elf_size(image.cast())
            .map(|size| std::slice::from_raw_parts(image.cast::<u8>(), size).to_vec())
    };
    answer(
        bytes
            .ok_or(error::INVALID_IMAGE)
            .and_then(|bytes| load(out, bytes)),
    )
}

pub extern "C" fn hipModuleUnload(handle: *const Module) -> Error {
    let mut modules = lock(&MODULES);
    let Some(at) = modules
        .iter()
        .position(|module| std::ptr::eq(*module, handle))
    else {
        return answer(Err(error::INVALID_HANDLE));
    };
    modules.remove(at).unload();
    error::SUCCESS
}

pub unsafe extern "C" fn hipModuleGetFunction(
    out: *mut *const Function,
    handle: *const Module,
    name: *const c_char,
) -> Error {
    let module = lock(&MODULES)
        .iter()
        .copied()
        .find(|module| std::ptr::eq(*module, handle));
    let (Some(module), false) = (module, name.is_null()) else {
        return answer(Err(error::INVALID_HANDLE));
    };
    // SAFETY: it is a C string of the application.
    let name = unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned();
    answer(current().and_then(|device| {
        module.kernel(device, &name)?;
        let function: &'static Function = Box::leak(Box::new(Function { module, name }));
        lock(&FUNCTIONS).push(function);
        // SAFETY: the application promises that its out pointer is null or writable.
        unsafe { put(out, std::ptr::from_ref(function)) }
    }))
}

pub unsafe extern "C" fn hipModuleLaunchKernel(
    handle: *const Function,
    gx: u32,
    gy: u32,
    gz: u32,
    x: u32,
    y: u32,
    z: u32,
    shared: u32,
    stream: *const Stream,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Error {
    let function = lock(&FUNCTIONS)
        .iter()
        .copied()
        .find(|function| std::ptr::eq(*function, handle));
    answer(
        function.ok_or(error::INVALID_HANDLE).and_then(|function| {
            launch(function, [gx, gy, gz], [x, y, z], shared as usize, stream)
        }),
    )
}

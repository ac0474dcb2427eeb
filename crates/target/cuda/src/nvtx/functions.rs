//! The functions behind NVTX's table entries: they forward to CUPTI's functions, with names in
//! place of handles.
//!
//! They run on threads of the application, in its NVTX calls: no lock, no allocation, no system
//! call of midair's. CUPTI's handles of strings and domains end with CUPTI. Ours stay valid as long as
//! the process lives, because an application keeps them.

use super::tables::{CORE, CORE2};
use crate::cupti::Cupti;
use midair_lockfree::{AtomicEnum, word_enum};
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// An entry that is hooked, and the function for it.
#[derive(Debug, Clone, Copy)]
pub struct Hook {
    /// NVTX's number of the module.
    pub module: u32,
    /// NVTX's number of the function.
    pub id: u32,
    ours: Ours,
}

/// A function of any type; only its address is used.
#[derive(Debug, Clone, Copy)]
struct Ours(*const c_void);
// SAFETY: the address of a function, which is never written to.
unsafe impl Sync for Ours {}

impl Hook {
    const fn new(module: u32, id: u32, ours: *const c_void) -> Hook {
        Hook {
            module,
            id,
            ours: Ours(ours),
        }
    }
    /// Address of our function.
    pub fn address(&self) -> usize {
        self.ours.0.expose_provenance()
    }
}

/// All hooked entries (numbers: `NvtxCallbackIdCore`, `NvtxCallbackIdCore2` in NVTX's nvtxTypes.h).
/// Functions that would return a handle for a name in wide characters are left out.
pub static HOOKS: [Hook; 19] = [
    Hook::new(CORE, 1, mark_ex as *const c_void),
    Hook::new(CORE, 2, mark_a as *const c_void),
    Hook::new(CORE, 3, mark_w as *const c_void),
    Hook::new(CORE, 4, start_ex as *const c_void),
    Hook::new(CORE, 5, start_a as *const c_void),
    Hook::new(CORE, 6, start_w as *const c_void),
    Hook::new(CORE, 7, end as *const c_void),
    Hook::new(CORE, 8, push_ex as *const c_void),
    Hook::new(CORE, 9, push_a as *const c_void),
    Hook::new(CORE, 10, push_w as *const c_void),
    Hook::new(CORE, 11, pop as *const c_void),
    Hook::new(CORE2, 1, domain_mark_ex as *const c_void),
    Hook::new(CORE2, 2, domain_start_ex as *const c_void),
    Hook::new(CORE2, 3, domain_end as *const c_void),
    Hook::new(CORE2, 4, domain_push_ex as *const c_void),
    Hook::new(CORE2, 5, domain_pop as *const c_void),
    Hook::new(CORE2, 10, register_string_a as *const c_void),
    Hook::new(CORE2, 12, domain_create_a as *const c_void),
    Hook::new(CORE2, 14, domain_destroy as *const c_void),
];

/// Number of modules, counted from 0, which is none; and entries of the largest module, likewise.
const MODULES: usize = 7;
const MOST: usize = 17;
/// Number of functions of each module, counted from 0, which is none (`NVTX_CBID_*_SIZE`).
const SIZES: [u32; MODULES] = [0, 16, 9, 15, 7, 16, 7];

/// The function table that CUPTI fills in place of a library's table.
static ENTRIES: [[AtomicUsize; MOST]; MODULES] =
    [const { [const { AtomicUsize::new(0) }; MOST] }; MODULES];
/// Addresses of those entries, as NVTX exports them; null at 0 and behind the last.
static LISTS: [[AtomicUsize; MOST + 1]; MODULES] =
    [const { [const { AtomicUsize::new(0) }; MOST + 1] }; MODULES];

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    functions: unsafe extern "C" fn(c_int, *mut *const c_void, *mut u32) -> c_int,
}
static CALLBACKS: Callbacks = Callbacks {
    size: size_of::<Callbacks>(),
    functions: module_functions,
};

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set: unsafe extern "C" fn(u32),
}
static VERSION_INFO: VersionInfo = VersionInfo {
    size: size_of::<VersionInfo>(),
    version: 3,
    reserved: 0,
    set: version_of_tool,
};

unsafe extern "C" fn version_of_tool(_: u32) {}

/// A library's `nvtxGetExportTable`, for CUPTI: it may ask now or later.
unsafe extern "C" fn export(id: u32) -> *const c_void {
    match id {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION_INFO).cast(),
        _ => std::ptr::null(),
    }
}

unsafe extern "C" fn module_functions(
    module: c_int,
    list: *mut *const c_void,
    size: *mut u32,
) -> c_int {
    let module = usize::try_from(module).unwrap_or(MODULES);
    let (Some(entries), Some(addresses), Some(count)) =
        (ENTRIES.get(module), LISTS.get(module), SIZES.get(module))
    else {
        return 0;
    };
    if *count == 0 {
        return 0;
    }
    for (entry, address) in entries
        .iter()
        .zip(addresses)
        .skip(1)
        .take(*count as usize - 1)
    {
        address.store(entry.as_ptr().expose_provenance(), Release);
    }
    // SAFETY: the tool passes valid out pointers, or null for a result that it does not want.
    unsafe {
        if !list.is_null() {
            *list = addresses.as_ptr().cast();
        }
        if !size.is_null() {
            *size = *count;
        }
    }
    1
}

/// The entry function of the CUPTI that was connected. Its functions stay where they are, also
/// between two sessions.
static CONNECTED: AtomicUsize = AtomicUsize::new(0);

/// Makes CUPTI fill in its functions, once in a process. Returns whether it supports this.
pub fn connect(cupti: &Cupti) -> bool {
    let Some(initialize) = cupti.functions().initialize_nvtx else {
        return false;
    };
    if CONNECTED.swap(initialize as usize, AcqRel) == initialize as usize {
        return true;
    }
    // SAFETY: CUPTI's function for this purpose, and ours of the type that it calls; everything
    // that it can reach is static.
    let takes_part = unsafe { initialize(export) } == 1;
    if !takes_part {
        CONNECTED.store(0, Release);
    }
    takes_part
}

/// Whether CUPTI has filled in any function.
pub fn is_filled() -> bool {
    let mut entries = ENTRIES.iter().flatten();
    entries.any(|entry| entry.load(Acquire) != 0)
}

/// CUPTI's function of a number, where it has one.
fn cuptis(module: u32, id: u32) -> Option<usize> {
    let entry = ENTRIES.get(module as usize)?.get(id as usize)?;
    match entry.load(Acquire) {
        0 => None,
        function => Some(function),
    }
}

/// Calls CUPTI's function of a number with arguments, or returns what NVTX returns without a tool.
macro_rules! pass {
    ($module:expr, $id:literal, fn($($ty:ty),*) -> $out:ty, ($($arg:expr),*), $none:expr) => {
        match cuptis($module, $id) {
            // SAFETY: CUPTI stored a function of this type there, by NVTX's numbers; it is called
            // with the application's arguments.
            Some(function) => unsafe {
                let function = std::mem::transmute::<usize, unsafe extern "C" fn($($ty),*) -> $out>(function);
                function($($arg),*)
            },
            None => $none,
        }
    };
}

/// The result of a push that no tool tracks (`NVTX_NO_PUSH_POP_TRACKING`).
const NOT_TRACKED: c_int = -2;
/// Text of a range whose name was registered while there was no tool.
const UNNAMED: &[u8] = b"(registered before the attach)\0";
/// Types of messages.
const ASCII: i32 = 1;
const REGISTERED: i32 = 3;

/// `nvtxEventAttributes_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attributes {
    /// NVTX's version.
    pub version: u16,
    /// Size of this struct, in bytes.
    pub size: u16,
    /// Category.
    pub category: u32,
    /// Type of the colour, and the colour.
    pub colour: [u32; 2],
    /// Type of the payload, and padding.
    pub payload_type: [i32; 2],
    /// Payload.
    pub payload: u64,
    /// Type of `message`.
    pub message_type: i32,
    /// A text, or a handle.
    pub message: *const c_char,
}

/// An application's event as CUPTI gets it: with a text in place of a handle of midair's.
struct Event {
    original: *const Attributes,
    copy: Option<Attributes>,
}

impl Event {
    /// # Safety
    /// `event` is null or an event of NVTX that stays valid while this is used.
    unsafe fn new(event: *const Attributes) -> Event {
        let unchanged = Event {
            original: event,
            copy: None,
        };
        // SAFETY: the caller's promise; the first fields exist in every version.
        if event.is_null() || usize::from(unsafe { (*event).size }) < size_of::<Attributes>() {
            return unchanged;
        }
        // SAFETY: its size says that it is as large.
        let mut copy = unsafe { *event };
        if copy.message_type != REGISTERED {
            return unchanged;
        }
        copy.size = size_of::<Attributes>() as u16;
        copy.message_type = ASCII;
        copy.message = entry_of(copy.message.addr(), Kind::String)
            .map_or(UNNAMED.as_ptr().cast(), Named::text);
        Event {
            original: event,
            copy: Some(copy),
        }
    }

    fn as_ptr(&self) -> *const Attributes {
        self.copy.as_ref().map_or(self.original, std::ptr::from_ref)
    }
}

unsafe extern "C" fn mark_ex(event: *const Attributes) {
    // SAFETY: the application's own event, which is valid for this call.
    let event = unsafe { Event::new(event) };
    pass!(CORE, 1, fn(*const Attributes) -> (), (event.as_ptr()), ());
}
unsafe extern "C" fn mark_a(text: *const c_char) {
    pass!(CORE, 2, fn(*const c_char) -> (), (text), ());
}
unsafe extern "C" fn mark_w(text: *const c_void) {
    pass!(CORE, 3, fn(*const c_void) -> (), (text), ());
}
unsafe extern "C" fn start_ex(event: *const Attributes) -> u64 {
    // SAFETY: the application's own event, which is valid for this call.
    let event = unsafe { Event::new(event) };
    pass!(CORE, 4, fn(*const Attributes) -> u64, (event.as_ptr()), 0)
}
unsafe extern "C" fn start_a(text: *const c_char) -> u64 {
    pass!(CORE, 5, fn(*const c_char) -> u64, (text), 0)
}
unsafe extern "C" fn start_w(text: *const c_void) -> u64 {
    pass!(CORE, 6, fn(*const c_void) -> u64, (text), 0)
}
unsafe extern "C" fn end(range: u64) {
    pass!(CORE, 7, fn(u64) -> (), (range), ());
}
unsafe extern "C" fn push_ex(event: *const Attributes) -> c_int {
    // SAFETY: the application's own event, which is valid for this call.
    let event = unsafe { Event::new(event) };
    pass!(
        CORE,
        8,
        fn(*const Attributes) -> c_int,
        (event.as_ptr()),
        NOT_TRACKED
    )
}
unsafe extern "C" fn push_a(text: *const c_char) -> c_int {
    pass!(CORE, 9, fn(*const c_char) -> c_int, (text), NOT_TRACKED)
}
unsafe extern "C" fn push_w(text: *const c_void) -> c_int {
    pass!(CORE, 10, fn(*const c_void) -> c_int, (text), NOT_TRACKED)
}
unsafe extern "C" fn pop() -> c_int {
    pass!(CORE, 11, fn() -> c_int, (), NOT_TRACKED)
}
unsafe extern "C" fn domain_mark_ex(domain: usize, event: *const Attributes) {
    // SAFETY: the application's own event, which is valid for this call.
    let event = unsafe { Event::new(event) };
    pass!(
        CORE2,
        1,
        fn(usize, *const Attributes) -> (),
        (domain_of(domain), event.as_ptr()),
        ()
    );
}
unsafe extern "C" fn domain_start_ex(domain: usize, event: *const Attributes) -> u64 {
    // SAFETY: the application's own event, which is valid for this call.
    let event = unsafe { Event::new(event) };
    pass!(
        CORE2,
        2,
        fn(usize, *const Attributes) -> u64,
        (domain_of(domain), event.as_ptr()),
        0
    )
}
unsafe extern "C" fn domain_end(domain: usize, range: u64) {
    pass!(
        CORE2,
        3,
        fn(usize, u64) -> (),
        (domain_of(domain), range),
        ()
    );
}
unsafe extern "C" fn domain_push_ex(domain: usize, event: *const Attributes) -> c_int {
    // SAFETY: the application's own event, which is valid for this call.
    let event = unsafe { Event::new(event) };
    pass!(
        CORE2,
        4,
        fn(usize, *const Attributes) -> c_int,
        (domain_of(domain), event.as_ptr()),
        NOT_TRACKED
    )
}
unsafe extern "C" fn domain_pop(domain: usize) -> c_int {
    pass!(
        CORE2,
        5,
        fn(usize) -> c_int,
        (domain_of(domain)),
        NOT_TRACKED
    )
}
unsafe extern "C" fn register_string_a(_: usize, text: *const c_char) -> usize {
    // SAFETY: the application's own text, or null.
    unsafe { add_name(Kind::String, text) }.map_or(0, Named::handle)
}
unsafe extern "C" fn domain_create_a(text: *const c_char) -> usize {
    // SAFETY: the application's own text, or null.
    let Some(domain) = (unsafe { add_name(Kind::Domain, text) }) else {
        return 0;
    };
    domain.register_with_cupti();
    domain.handle()
}
unsafe extern "C" fn domain_destroy(_: usize) {}

word_enum! {
    /// What a handle names.
    enum Kind else Unused {
        /// Nothing yet.
        Unused = 0,
        /// A registered string.
        String = 1,
        /// A domain.
        Domain = 2,
    }
}

/// Maximum number of handles in a process, and of bytes of each text with its terminator. Beyond
/// that an application gets no handle, as without a tool.
const HANDLES: usize = 1024;
const TEXT: usize = 112;

/// The target of a handle. It is never freed.
struct Named {
    /// What it names; stored last.
    kind: AtomicEnum<Kind>,
    /// CUPTI's handle of the domain in this session, or 0: the default domain.
    domain: AtomicUsize,
    text: UnsafeCell<[u8; TEXT]>,
}
// SAFETY: the text is written by the one thread that claimed the entry, before `kind` is stored,
// and only read afterwards.
unsafe impl Sync for Named {}

static NAMES: [Named; HANDLES] = [const {
    Named {
        kind: AtomicEnum::new(),
        domain: AtomicUsize::new(0),
        text: UnsafeCell::new([0; TEXT]),
    }
}; HANDLES];
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Named {
    fn text(&self) -> *const c_char {
        self.text.get().cast()
    }
    fn handle(&self) -> usize {
        std::ptr::from_ref(self).expose_provenance()
    }
    /// Lets CUPTI make its own handle of the domain.
    fn register_with_cupti(&self) {
        let domain = pass!(CORE2, 12, fn(*const c_char) -> usize, (self.text()), 0);
        self.domain.store(domain, Release);
    }
}

/// Claims an entry for a name. `None` when all are in use, or there is no name.
///
/// # Safety
/// `text` is null or a terminated text.
unsafe fn add_name(kind: Kind, text: *const c_char) -> Option<&'static Named> {
    if text.is_null() {
        return None;
    }
    let entry = NAMES.get(NEXT.fetch_add(1, Relaxed).min(HANDLES))?;
    let to = entry.text.get().cast::<c_char>();
    for at in 0..TEXT - 1 {
        // SAFETY: the application's terminated text up to its terminator; the entry belongs to this
        // thread until `kind` is stored.
        unsafe {
            let letter = *text.add(at);
            if letter == 0 {
                break;
            }
            *to.add(at) = letter;
        }
    }
    entry.kind.store(kind, Release);
    Some(entry)
}

/// The entry of a handle; `None` for what is no midair handle.
fn entry_of(handle: usize, kind: Kind) -> Option<&'static Named> {
    let offset = handle.checked_sub(NAMES.as_ptr().addr())?;
    let entry = NAMES.get(offset / size_of::<Named>())?;
    (offset % size_of::<Named>() == 0 && entry.kind.load(Acquire) == kind).then_some(entry)
}

/// CUPTI's handle of a domain; 0, the default domain, where there is none.
fn domain_of(handle: usize) -> usize {
    entry_of(handle, Kind::Domain).map_or(0, |domain| domain.domain.load(Acquire))
}

/// On the worker thread, at the start of a session: tells CUPTI the domains that the application
/// has handles of.
pub fn register_domains() {
    for entry in &NAMES {
        if entry.kind.load(Acquire) == Kind::Domain {
            entry.register_with_cupti();
        }
    }
}

/// On the worker thread, at the end of a session: CUPTI's handles end with it.
pub fn forget_domains() {
    for entry in &NAMES {
        entry.domain.store(0, Release);
    }
}

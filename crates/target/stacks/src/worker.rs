//! Starting and ending: all of it on the worker thread.

use crate::common::{MISSED, ModuleRecord, Unavailable, header, symbol};
use crate::native::{Modules, Table, notices_changes};
use crate::python::Python;
use crate::{ACTIVE, Session, Wanted};
use midair_record::event::{NATIVE, NO_PYTHON, Stack, kind};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// The most tables of one session. Each change of the list of libraries makes one, and all are kept
/// until its end.
const MOST_TABLES: usize = 128;
/// How long the list is not read again after it was, for each table that there is.
const PAUSE: Duration = Duration::from_millis(10);
/// How often the list is read at the start of a session, if libraries come and go meanwhile.
const MOST_TRIES: usize = 8;

/// The mapping that holds the session's tables; it is never unmapped. Null before the first session
/// with stacks.
static MAPPED: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());

/// What the worker keeps for native stacks. It is taken out while it is used, so a process that is
/// forked meanwhile finds none.
static NATIVE_STATE: AtomicPtr<Native> = AtomicPtr::new(std::ptr::null_mut());

#[derive(Debug, Default)]
struct Native {
    modules: Modules,
    /// The one in use is the last.
    #[expect(
        clippy::vec_box,
        reason = "threads keep a table's address while others are added"
    )]
    tables: Vec<Box<Table>>,
    /// The function that executes Python code.
    python: Option<u64>,
    /// How often libraries were loaded and unloaded when the list was read.
    epoch: u64,
    /// When it was last looked at again.
    looked: Option<Instant>,
}

impl Native {
    fn begin(python: Option<u64>) -> Result<(Box<Native>, Vec<ModuleRecord>), Unavailable> {
        // SAFETY: the name is a C string.
        let library = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr()) };
        if library.is_null() {
            return Err(Unavailable::Library);
        }
        let mut native = Box::new(Native {
            python,
            ..Native::default()
        });
        for _ in 0..MOST_TRIES {
            if let Some(records) = native.read()? {
                return Ok((native, records));
            }
        }
        // The process loads one library after the other. They are looked for during the session.
        let empty = Table::of(&native.modules, None).ok_or(Unavailable::Memory)?;
        native.tables.push(Box::new(empty));
        Ok((native, Vec::new()))
    }

    /// Reads the list of modules, and adds a table if it has changed. Returns the records of new
    /// modules. None if libraries came or went meanwhile: then nothing is changed, since what was read
    /// of one may be another's.
    fn read(&mut self) -> Result<Option<Vec<ModuleRecord>>, Unavailable> {
        let now = epoch();
        let mut modules = self.modules.clone();
        let records = modules.read()?;
        let is_new = self.tables.is_empty() || !modules.is_like(&self.modules);
        let table = is_new.then(|| Table::of(&modules, self.python).ok_or(Unavailable::Memory));
        let table = table.transpose()?;
        if epoch() != now {
            return Ok(None);
        }
        (self.epoch, self.modules) = (now, modules);
        self.tables.extend(table.map(Box::new));
        Ok(Some(records))
    }

    fn table(&self) -> *mut Table {
        let last = self.tables.last();
        last.map_or(std::ptr::null_mut(), |table| {
            std::ptr::from_ref(table.as_ref()).cast_mut()
        })
    }

    fn taken() -> Option<Box<Native>> {
        let at = NATIVE_STATE.swap(std::ptr::null_mut(), Acquire);
        // SAFETY: it is from `put`, and the swap has made it this function's alone.
        (!at.is_null()).then(|| unsafe { Box::from_raw(at) })
    }

    fn put(self: Box<Self>) {
        NATIVE_STATE.store(Box::into_raw(self), Release);
    }
}

/// A session with stacks.
#[derive(Debug)]
pub struct Started {
    /// The record by which a session says that it takes stacks: one without a number.
    pub on: Stack,
    /// Records of the process's modules.
    pub modules: Vec<ModuleRecord>,
    /// What the user should know: stacks of one kind are not taken.
    pub note: Option<String>,
}

/// Starts to take stacks, with empty tables. Called on the worker thread while no thread can be in
/// [`crate::take`].
///
/// # Errors
/// Why there are no stacks; then [`crate::take`] does nothing.
pub fn begin(wanted: Wanted) -> Result<Started, Unavailable> {
    end();
    // What could not be freed stays: a thread may still be in there.
    if let Some(left) = Native::taken() {
        let _ = Box::leak(left);
    }
    let mut note = None;
    let python = match wanted.python.then(Python::find) {
        None => None,
        Some(Ok(python)) => Some(python),
        Some(Err(why)) if !wanted.native => return Err(why),
        Some(Err(why)) => {
            note = (why != Unavailable::NoPython).then(|| why.partly("Python"));
            None
        }
    };
    let mut native = None;
    let mut modules = Vec::new();
    if wanted.native {
        let evaluates = match symbol(c"_PyEval_EvalFrameDefault") {
            at if at != 0 && python.is_some() => Some(at as u64),
            _ => None,
        };
        match Native::begin(evaluates) {
            Ok((begun, records)) => (native, modules) = (Some(begun), records),
            Err(why) if python.is_none() => return Err(why),
            Err(why) => note = Some(why.partly("native")),
        }
    }
    let at = mapped()?;
    let mut flags = 0;
    // SAFETY: the mapping has room for a session. Python is written before any thread looks at it, and
    // never again: a process has one. The rest is valid when zeroed, and any thread may use it at any
    // time.
    let session = unsafe {
        if let Some(python) = &python
            && !(*at).has_python.load(Relaxed)
        {
            (&raw mut (*at).python).write(std::mem::MaybeUninit::new(*python));
            (*at).has_python.store(true, Release);
        }
        &*at
    };
    session.takes_python.store(python.is_some(), Relaxed);
    if python.is_none() {
        flags |= NO_PYTHON;
    }
    if native.is_some() {
        flags |= NATIVE;
    }
    let table = native
        .as_ref()
        .map_or(std::ptr::null_mut(), |it| it.table());
    session.native.store(table, Release);
    if let Some(native) = native {
        native.put();
    }
    session.stacks.clear();
    session.functions.clear();
    session.modules.clear();
    session.cost.begin(wanted.budget);
    ACTIVE.store(at, Release);
    let mut header = header::<Stack>(kind::STACK, 0, 0);
    header.flags = flags;
    let on = Stack {
        header,
        frames: 0,
        is_cut: 0,
    };
    Ok(Started { on, modules, note })
}

/// Returns the tables of the last session with stacks.
pub(crate) fn last() -> Option<&'static Session> {
    // SAFETY: it is null, or the mapping that `begin` has filled, which is never unmapped.
    unsafe { MAPPED.load(Acquire).as_ref() }
}

fn mapped() -> Result<*mut Session, Unavailable> {
    let known = MAPPED.load(Acquire);
    if !known.is_null() {
        return Ok(known);
    }
    // SAFETY: this creates a fresh private mapping at an address that the kernel chooses. Its pages are
    // there from the start, so that no thread of the application waits for them.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Session>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(Unavailable::Memory);
    }
    MAPPED.store(base.cast(), Release);
    Ok(base.cast())
}

/// Reads the list of modules again, if a walk has met unknown code and libraries were loaded or unloaded.
/// Returns the records of new modules. Call it some hundred times a second, on the worker thread.
///
/// The count of libraries needs the loader's lock, so it is not read while all code is known. Before glibc
/// 2.35 no walk notices a library in another one's place, and it is read each time.
pub fn refresh() -> Vec<ModuleRecord> {
    if !MISSED.load(Relaxed) && notices_changes() {
        return Vec::new();
    }
    // SAFETY: it is null, or the mapping that `begin` has filled, which is never unmapped.
    let Some(session) = (unsafe { ACTIVE.load(Acquire).as_ref() }) else {
        return Vec::new();
    };
    let Some(mut native) = Native::taken() else {
        return Vec::new();
    };
    let pause = PAUSE * native.tables.len() as u32;
    let is_due = native.looked.is_none_or(|looked| looked.elapsed() >= pause);
    let mut records = Vec::new();
    if is_due && native.tables.len() < MOST_TABLES {
        MISSED.store(false, Relaxed);
        native.looked = Some(Instant::now());
        if native.epoch != epoch() {
            match native.read() {
                Ok(Some(new)) => {
                    records = new;
                    session.native.store(native.table(), Release);
                }
                _ => MISSED.store(true, Relaxed),
            }
        }
    }
    native.put();
    records
}

/// Returns how often libraries were loaded and unloaded.
fn epoch() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _: usize,
        count: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the loader passes a library's description, and `count` is the one below.
        unsafe { *count.cast::<u64>() = (*info).dlpi_adds.wrapping_add((*info).dlpi_subs) };
        1
    }
    let mut count = 0_u64;
    // SAFETY: the function is called once, while `count` lives.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

/// Stops taking stacks. A thread that is in [`crate::take`] finishes.
pub fn end() {
    ACTIVE.store(std::ptr::null_mut(), Release);
}

/// Frees the tables for native stacks. Called after [`end`], when every thread was seen outside of
/// [`crate::take`].
pub fn release() {
    let session = MAPPED.load(Acquire);
    // SAFETY: it is null, or the mapping of `begin`, which is never unmapped.
    if let Some(session) = unsafe { session.as_ref() } {
        session.native.store(std::ptr::null_mut(), Release);
    }
    drop(Native::taken());
}

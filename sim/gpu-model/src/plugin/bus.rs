//! Rings in device memory, as the program's processor sees them: writes are combined, and each
//! read goes over the bus.
//!
//! The model reads a ring through the aperture, so the mapping that the program uses can be closed
//! (`PROT_NONE`). An access then faults. The handler counts it if it is a read, and lets it through
//! by opening the ring for one single-stepped instruction. If several threads of a program use a
//! ring at the same time, the count is too low, since the other threads pass while one steps.
//!
//! An instruction that reads counts as one read. Consecutive streaming loads (`movntdqa`) from one
//! line count as one read, since the first fetches the line into a buffer that serves the others.
//! That is the purpose of this instruction.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// How many rings can be watched at one time.
const RINGS: usize = 64;
const PAGE: u64 = 4096;
/// The size of a line in bytes.
const LINE: u64 = 64;

struct Ring {
    /// The first byte, or 0 for none.
    at: AtomicU64,
    bytes: AtomicU64,
    reads: AtomicU64,
}

static WATCHED: [Ring; RINGS] = [const {
    Ring {
        at: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        reads: AtomicU64::new(0),
    }
}; RINGS];
/// The line that a streaming load has fetched, and the thread that did it, folded into one word.
static STREAMED: AtomicU64 = AtomicU64::new(0);
static INSTALLED: Mutex<bool> = Mutex::new(false);
static FAULT_BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Returns how many reads of this ring went over the bus, or `None` when it is not watched.
pub(super) fn reads(ring: u64) -> Option<u64> {
    if !IN_USE.load(Ordering::Acquire) {
        return None;
    }
    find(ring).map(|ring| ring.reads.load(Ordering::Acquire))
}

fn find(at: u64) -> Option<&'static Ring> {
    WATCHED.iter().find(|ring| {
        let first = ring.at.load(Ordering::Acquire);
        first != 0 && at.wrapping_sub(first) < ring.bytes.load(Ordering::Acquire)
    })
}

impl Ring {
    fn protect(&self, protection: i32) -> bool {
        let at = self.at.load(Ordering::Acquire) as usize;
        let bytes = self.bytes.load(Ordering::Acquire) as usize;
        // SAFETY: these are whole pages of a ring that the runtime keeps mapped as long as its
        // queue lives. The handler below serves accesses to a closed ring.
        unsafe { libc::mprotect(std::ptr::with_exposed_provenance_mut(at), bytes, protection) == 0 }
    }
}

/// Closes the program's mapping of a ring.
pub(super) fn watch(at: u64, bytes: u64) -> Result<(), String> {
    if !at.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) {
        return Err(format!(
            "MODEL_RING=device: a ring of {bytes} bytes at {at:#x}"
        ));
    }
    install()?;
    let free = WATCHED.iter().find(|ring| {
        ring.at
            .compare_exchange(0, at, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
    let ring = free.ok_or("MODEL_RING=device: too many queues")?;
    ring.reads.store(0, Ordering::Release);
    ring.bytes.store(bytes, Ordering::Release);
    IN_USE.store(true, Ordering::Release);
    ring.protect(libc::PROT_NONE)
        .then_some(())
        .ok_or_else(|| format!("mprotect: {}", std::io::Error::last_os_error()))
}

/// Opens the mapping of a ring again, because its queue is destroyed.
pub(super) fn forget(at: u64) {
    if let Some(ring) = find(at) {
        ring.protect(libc::PROT_READ | libc::PROT_WRITE);
        ring.bytes.store(0, Ordering::Release);
        ring.at.store(0, Ordering::Release);
    }
}

fn install() -> Result<(), String> {
    let mut installed = INSTALLED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    let set = |number: i32, handler: Handler, before: *mut libc::sigaction| {
        // SAFETY: an all-zero sigaction is valid: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        // SAFETY: both structs are valid, and the handler has the form with three arguments.
        unsafe { libc::sigaction(number, &raw const action, before) == 0 }
    };
    // SAFETY: it is plain data that sigaction fills.
    let mut before: Box<libc::sigaction> = unsafe { Box::new(std::mem::zeroed()) };
    if !set(libc::SIGTRAP, on_step, std::ptr::null_mut())
        || !set(libc::SIGSEGV, on_fault, &raw mut *before)
    {
        return Err(format!("sigaction: {}", std::io::Error::last_os_error()));
    }
    FAULT_BEFORE.store(Box::into_raw(before), Ordering::Release);
    *installed = true;
    Ok(())
}

type Handler = unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// The bit of the error code for a write access.
const WRITE: i64 = 2;
/// The trap flag.
const STEP: i64 = 1 << 8;

/// Returns whether the instruction at `at` is a streaming load: `66 [REX] 0F 38 2A`, or its VEX
/// form.
///
/// # Safety
/// `at` must be the instruction that the thread has just started.
unsafe fn is_streaming(at: *const u8) -> bool {
    // SAFETY: an instruction with this prefix has at least five bytes. Each byte is read only if
    // the bytes before it imply that it exists.
    unsafe {
        match at.read() {
            0x66 => {
                let rex = usize::from(at.add(1).read() & 0xf0 == 0x40);
                at.add(1 + rex).read() == 0x0f
                    && at.add(2 + rex).read() == 0x38
                    && at.add(3 + rex).read() == 0x2a
            }
            0xc4 => at.add(1).read() & 0x1f == 2 && at.add(3).read() == 0x2a,
            _ => false,
        }
    }
}

/// Handles an access to a closed ring, or a fault of the program itself.
unsafe extern "C" fn on_fault(number: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes both to a handler of this form.
    let (at, context) = unsafe {
        (
            (*info).si_addr().addr() as u64,
            &mut *context.cast::<libc::ucontext_t>(),
        )
    };
    let Some(ring) = find(at) else {
        // SAFETY: this restores the action that was installed before. Without our handler the
        // access faults again, and ends the program as it would have without the model.
        unsafe {
            let before = FAULT_BEFORE.load(Ordering::Acquire);
            libc::sigaction(number, before, std::ptr::null_mut());
        }
        return;
    };
    let registers = &mut context.uc_mcontext.gregs;
    // SAFETY: gettid takes no arguments.
    let thread = unsafe { libc::gettid() } as u64;
    let here = (thread << 42) ^ (at / LINE);
    if registers[libc::REG_ERR as usize] & WRITE != 0 {
        STREAMED.store(0, Ordering::Release);
    } else {
        let rip = registers[libc::REG_RIP as usize] as usize;
        // SAFETY: it is the instruction pointer of the thread that this handler interrupts.
        let streaming = unsafe { is_streaming(std::ptr::with_exposed_provenance(rip)) };
        let fetched = STREAMED.swap(if streaming { here } else { 0 }, Ordering::AcqRel);
        if !streaming || fetched != here {
            ring.reads.fetch_add(1, Ordering::AcqRel);
        }
    }
    ring.protect(libc::PROT_READ | libc::PROT_WRITE);
    registers[libc::REG_EFL as usize] |= STEP;
}

/// Closes all rings again after the instruction has run.
unsafe extern "C" fn on_step(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes it to a handler of this form.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !STEP;
    for ring in &WATCHED {
        if ring.at.load(Ordering::Acquire) != 0 {
            ring.protect(libc::PROT_NONE);
        }
    }
}

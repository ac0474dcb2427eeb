//! What ROCr's emulated driver does not know: samples of program counters (`MODEL_SAMPLING=1`).
//!
//! The answers are the kernel driver's (`docs/sources.md#samples`): interface 1.16, `PC_SAMPLE` with one
//! session for each method, `SET_TRAP_HANDLER`, which hands over the address of ROCr's structures, and
//! `UPDATE_QUEUE`. Clocks count as the model's, so that ROCr's translation of times leaves them as
//! they are. Every other request is passed on.

use super::kfd_entry;
use crate::machine::Machine;
use crate::sampling::Sampling;
use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// ROCr's function for requests.
pub(super) type Handler = unsafe extern "C" fn(c_ulong, *mut c_void) -> c_int;

static ORIGINAL: OnceLock<kfd_entry::Original> = OnceLock::new();
static STATE: Mutex<State> = Mutex::new(State::new());
/// Whether a session samples: looked at for each kernel.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Whether a debugger is on the process.
static DEBUGGED: AtomicBool = AtomicBool::new(false);
/// Cycles of the device's clock in a microsecond.
static CLOCK_MHZ: AtomicU64 = AtomicU64::new(1);

mod request {
    pub const GET_VERSION: u64 = 0x8008_4b01;
    pub const CLOCKS: u64 = 0xc028_4b05;
    pub const TRAP_HANDLER: u64 = 0x4018_4b13;
    pub const UPDATE_QUEUE: u64 = 0x4018_4b07;
    pub const PC_SAMPLE: u64 = 0xc020_4b85;
}

mod operation {
    pub const QUERY: u32 = 0;
    pub const CREATE: u32 = 1;
    pub const DESTROY: u32 = 2;
    pub const START: u32 = 3;
    pub const STOP: u32 = 4;
}

const HOST_TRAP: u32 = 1;
const STOCHASTIC: u32 = 2;
const MICROSECONDS: u32 = 0;
const CYCLES: u32 = 1;
/// Flag of a setting: its interval is a power of two.
const POWER_OF_TWO: u64 = 1;
/// Flag of a query: also what cannot be had while others sample.
const FULL: u32 = 1;

/// What can be sampled, or is.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Info {
    interval: u64,
    least: u64,
    most: u64,
    flags: u64,
    method: u32,
    unit: u32,
}

const CHOICES: [Info; 2] = [
    Info {
        interval: 0,
        least: 1,
        most: u32::MAX as u64,
        flags: 0,
        method: HOST_TRAP,
        unit: MICROSECONDS,
    },
    Info {
        interval: 0,
        least: 256,
        most: 1 << 31,
        flags: POWER_OF_TWO,
        method: STOCHASTIC,
        unit: CYCLES,
    },
];

/// The arguments of `PC_SAMPLE`.
#[repr(C)]
#[derive(Debug)]
struct Args {
    infos: u64,
    count: u32,
    operation: u32,
    gpu: u32,
    id: u32,
    flags: u32,
    version: u32,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    id: u32,
    info: Info,
    runs: bool,
}

#[derive(Debug)]
struct State {
    last: u32,
    sessions: [Option<Session>; 2],
    /// Where the trap handler finds ROCr's structures.
    handler_data: u64,
}

impl State {
    const fn new() -> State {
        State {
            last: 0,
            sessions: [None, None],
            handler_data: 0,
        }
    }
}

/// Puts [`answer`] in front of ROCr's driver. Ends the process if that cannot be done: a test must
/// not run with another driver than it asked for.
pub(super) fn install(clock_mhz: u64, debugged: bool) {
    DEBUGGED.store(debugged, Ordering::Release);
    CLOCK_MHZ.store(clock_mhz, Ordering::Release);
    if ORIGINAL.get().is_some() {
        return;
    }
    match kfd_entry::replace(answer) {
        Some(original) => {
            let _ = ORIGINAL.set(original);
        }
        None => super::give_up("MODEL_SAMPLING=1: this ROCr has another emulated driver"),
    }
}

/// Returns what is sampled now.
pub(super) fn sampling(machine: &impl Machine) -> Option<Sampling> {
    if !ACTIVE.load(Ordering::Acquire) {
        return None;
    }
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let session = state.sessions.iter().flatten().find(|it| it.runs)?;
    let stochastic = session.info.method == STOCHASTIC;
    let data = state.handler_data;
    let at = (data != 0).then(|| machine.load_u64(data + 8 * u64::from(stochastic)))?;
    let interval = match session.info.unit {
        CYCLES => session.info.interval * 1000 / CLOCK_MHZ.load(Ordering::Acquire).max(1),
        _ => session.info.interval * 1000,
    };
    (at != 0).then_some(Sampling {
        at,
        stochastic,
        interval,
    })
}

/// Answers a request of ROCr's.
unsafe extern "C" fn answer(request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: ROCr passes each request's own arguments, which live during the call.
    let done = unsafe {
        match request {
            request::GET_VERSION => {
                argument.cast::<[u32; 2]>().write_unaligned([1, 16]);
                Ok(())
            }
            request::CLOCKS => {
                // The runtime asks for them when it finds the device, before it makes queues.
                if let Some(original) = ORIGINAL.get() {
                    original.claim_debugging();
                }
                let now = now();
                argument
                    .cast::<[u64; 4]>()
                    .write_unaligned([now, now, now, 1_000_000_000]);
                Ok(())
            }
            // The queue for samples gets a high priority, which makes no difference here.
            request::UPDATE_QUEUE => Ok(()),
            request::TRAP_HANDLER => {
                let data = argument.cast::<u64>().add(1).read_unaligned();
                let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
                state.handler_data = data;
                Ok(())
            }
            request::PC_SAMPLE => sample(&mut *argument.cast::<Args>()),
            _ => match ORIGINAL.get() {
                Some(original) => return (original.answer)(request, argument),
                None => Err(libc::ENOTTY),
            },
        }
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            // SAFETY: the thread's own errno.
            unsafe { *libc::__errno_location() = error };
            -1
        }
    }
}

fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// # Safety
/// `args.infos` is 0, or the address of `args.count` settings.
unsafe fn sample(args: &mut Args) -> Result<(), i32> {
    let refuses = [operation::QUERY, operation::CREATE].contains(&args.operation);
    if refuses && DEBUGGED.load(Ordering::Acquire) {
        return Err(libc::EBUSY);
    }
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let infos: *mut Info = std::ptr::with_exposed_provenance_mut(args.infos as usize);
    match args.operation {
        operation::QUERY => {
            let in_force = state.sessions.iter().flatten().next().map(|it| it.info);
            let all: Vec<Info> = match in_force {
                Some(info) if args.flags & FULL == 0 => vec![info],
                _ => CHOICES.to_vec(),
            };
            let room = args.count as usize;
            args.count = all.len() as u32;
            if infos.is_null() || room == 0 {
                return Ok(());
            }
            if room < all.len() {
                return Err(libc::ENOSPC);
            }
            for (n, info) in all.into_iter().enumerate() {
                // SAFETY: there is room for so many, as the caller says.
                unsafe { infos.add(n).write_unaligned(info) };
            }
            Ok(())
        }
        operation::CREATE => {
            if infos.is_null() || args.count != 1 {
                return Err(libc::EINVAL);
            }
            // SAFETY: it is one setting, as the caller says.
            let info = unsafe { infos.read_unaligned() };
            let session = create(&mut state, info)?;
            args.id = session.id;
            Ok(())
        }
        operation::DESTROY | operation::START | operation::STOP => {
            let found = state.sessions.iter_mut().find(|it| {
                let id = it.as_ref().map(|it| it.id);
                id == Some(args.id)
            });
            let slot = found.ok_or(libc::EINVAL)?;
            let Some(session) = slot else {
                return Err(libc::EINVAL);
            };
            match (args.operation, session.runs) {
                (operation::DESTROY, false) => *slot = None,
                (operation::DESTROY, true) => return Err(libc::EBUSY),
                (operation::START, true) | (operation::STOP, false) => return Err(libc::EALREADY),
                (operation, _) => session.runs = operation == operation::START,
            }
            let any = state.sessions.iter().flatten().any(|it| it.runs);
            ACTIVE.store(any, Ordering::Release);
            Ok(())
        }
        _ => Err(libc::EINVAL),
    }
}

fn create(state: &mut State, info: Info) -> Result<Session, i32> {
    let choice = CHOICES
        .iter()
        .find(|choice| choice.method == info.method && choice.unit == info.unit)
        .ok_or(libc::EOPNOTSUPP)?;
    let is_power = info.interval.is_power_of_two() || choice.flags & POWER_OF_TWO == 0;
    if !(choice.least..=choice.most).contains(&info.interval) || !is_power {
        return Err(libc::EINVAL);
    }
    let slot = &mut state.sessions[(info.method - 1) as usize];
    if slot.is_some() {
        return Err(libc::EEXIST);
    }
    state.last += 1;
    let session = Session {
        id: state.last,
        info,
        runs: false,
    };
    *slot = Some(session);
    Ok(session)
}

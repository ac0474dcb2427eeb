//! The runtime's functions for samples (`hsa_ven_amd_pc_sampling.h`; source: `docs/sources.md#samples`).

use super::request::{Method, Request, Unit};
use std::ffi::c_void;

type Status = u32;

/// `hsa_ven_amd_pcs_configuration_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Choice {
    method: u32,
    unit: u32,
    least: usize,
    most: usize,
    flags: u64,
}

/// The flag of a [`Choice`] whose intervals are powers of two.
const POWER_OF_TWO: u64 = 1;
/// The most choices that are read.
const MOST_CHOICES: usize = 64;

/// Copies samples: takes the runtime's data, and the number of bytes.
pub(super) type Copy = unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> Status;
/// Passes samples: our data, the number of bytes, lost samples, the function that copies, its data.
pub(super) type Ready = unsafe extern "C" fn(*mut c_void, usize, usize, Copy, *mut c_void);
type Each = unsafe extern "C" fn(*const Choice, *mut c_void) -> Status;

/// The functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calls {
    iterate: unsafe extern "C" fn(u64, Each, *mut c_void) -> Status,
    create: unsafe extern "C" fn(
        u64,
        u32,
        u32,
        usize,
        usize,
        usize,
        Ready,
        *mut c_void,
        *mut u64,
    ) -> Status,
    destroy: unsafe extern "C" fn(u64) -> Status,
    start: unsafe extern "C" fn(u64) -> Status,
    stop: unsafe extern "C" fn(u64) -> Status,
    flush: unsafe extern "C" fn(u64) -> Status,
}

/// Milliseconds within which samples should be passed. The runtime ignores it so far; AMD's SDK passes
/// the same.
const LATENCY: usize = 1000;
/// Bytes of samples that the runtime passes at a time, as in AMD's SDK: 65,536 samples. The device has a
/// buffer of half as many, twice.
const BYTES: usize = 4 << 20;

impl Calls {
    /// Returns the functions; `None` if an entry is empty.
    ///
    /// # Safety
    /// The entries are the runtime's functions, in the order of its table, and are never unloaded.
    pub(super) unsafe fn of(entries: [usize; 7]) -> Option<Calls> {
        if entries.contains(&0) {
            return None;
        }
        let [iterate, create, _from_id, destroy, start, stop, flush] = entries;
        // SAFETY: the caller promises functions of these types.
        unsafe {
            Some(Calls {
                iterate: std::mem::transmute::<
                    usize,
                    unsafe extern "C" fn(u64, Each, *mut c_void) -> Status,
                >(iterate),
                create: std::mem::transmute::<
                    usize,
                    unsafe extern "C" fn(
                        u64,
                        u32,
                        u32,
                        usize,
                        usize,
                        usize,
                        Ready,
                        *mut c_void,
                        *mut u64,
                    ) -> Status,
                >(create),
                destroy: std::mem::transmute::<usize, unsafe extern "C" fn(u64) -> Status>(destroy),
                start: std::mem::transmute::<usize, unsafe extern "C" fn(u64) -> Status>(start),
                stop: std::mem::transmute::<usize, unsafe extern "C" fn(u64) -> Status>(stop),
                flush: std::mem::transmute::<usize, unsafe extern "C" fn(u64) -> Status>(flush),
            })
        }
    }

    /// Asks whether an agent offers what the request wants.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn check(&self, agent: u64, request: Request) -> Result<(), String> {
        let mut choices: Vec<Choice> = Vec::new();
        // SAFETY: this is the runtime's own query; `collect` has its function's type, and gets the vector.
        let status = unsafe { (self.iterate)(agent, collect, (&raw mut choices).cast()) };
        if status != 0 {
            return Err(format!(
                "the driver or the device does not offer it (status {status:#x}): it takes a driver \
                 with KFD 1.16, and no debugger"
            ));
        }
        fits(&choices, request)
    }

    /// Makes a session of an agent. `data` is passed to `ready`.
    ///
    /// # Errors
    /// The runtime's status.
    pub(super) fn create(
        &self,
        agent: u64,
        request: Request,
        ready: Ready,
        data: *mut c_void,
    ) -> Result<u64, Status> {
        let mut session = 0;
        // SAFETY: the runtime checks the agent's handle, and the out pointer is valid.
        let status = unsafe {
            (self.create)(
                agent,
                method_of(request),
                unit_of(request),
                request.interval as usize,
                LATENCY,
                BYTES,
                ready,
                data,
                &raw mut session,
            )
        };
        good(status).map(|()| session)
    }
    /// # Safety
    /// The session is live. So for the others.
    pub(super) unsafe fn start(&self, session: u64) -> Result<(), Status> {
        // SAFETY: the caller's promise.
        good(unsafe { (self.start)(session) })
    }
    pub(super) unsafe fn stop(&self, session: u64) -> Result<(), Status> {
        // SAFETY: the caller's promise.
        good(unsafe { (self.stop)(session) })
    }
    pub(super) unsafe fn flush(&self, session: u64) -> Result<(), Status> {
        // SAFETY: the caller's promise.
        good(unsafe { (self.flush)(session) })
    }
    pub(super) unsafe fn destroy(&self, session: u64) -> Result<(), Status> {
        // SAFETY: the caller's promise.
        good(unsafe { (self.destroy)(session) })
    }
}

fn good(status: Status) -> Result<(), Status> {
    if status == 0 { Ok(()) } else { Err(status) }
}

fn method_of(request: Request) -> u32 {
    match request.method {
        Method::HostTrap => 0,
        Method::Stochastic => 1,
    }
}

fn unit_of(request: Request) -> u32 {
    match request.unit {
        Unit::Time => 0,
        Unit::Cycles => 1,
        Unit::Instructions => 2,
    }
}

/// Takes a choice into a vector.
unsafe extern "C" fn collect(choice: *const Choice, data: *mut c_void) -> Status {
    // SAFETY: `data` is the vector of `check`, which nothing else uses during the query.
    let choices = unsafe { &mut *data.cast::<Vec<Choice>>() };
    if !choice.is_null() && choices.len() < MOST_CHOICES && choices.try_reserve(1).is_ok() {
        // SAFETY: the runtime passes a choice that lives during the call.
        choices.push(unsafe { choice.read_unaligned() });
    }
    0
}

/// Compares a request with what is offered. Settings that a device does not offer may stop it, so none
/// is tried.
fn fits(choices: &[Choice], request: Request) -> Result<(), String> {
    let units = ["time", "cycles", "instructions"];
    let interval = request.interval as usize;
    let matching = choices
        .iter()
        .find(|choice| choice.method == method_of(request) && choice.unit == unit_of(request));
    let Some(choice) = matching else {
        let offered: Vec<String> = choices
            .iter()
            .map(|choice| {
                let method = ["host_trap", "stochastic"].get(choice.method as usize);
                let unit = units.get(choice.unit as usize);
                format!("{} by {}", method.unwrap_or(&"?"), unit.unwrap_or(&"?"))
            })
            .collect();
        return Err(match offered.as_slice() {
            [] => "the device offers no method".to_owned(),
            offered => format!("the device offers {}", offered.join(", ")),
        });
    };
    if !(choice.least..=choice.most).contains(&interval) {
        return Err(format!(
            "the interval {interval} is not between {} and {}",
            choice.least, choice.most
        ));
    }
    if choice.flags & POWER_OF_TWO != 0 && !interval.is_power_of_two() {
        return Err(format!("the interval {interval} is not a power of two"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_offered_fits() {
        let choices = [
            Choice {
                least: 1,
                most: 100,
                ..Choice::default()
            },
            Choice {
                method: 1,
                unit: 1,
                least: 256,
                most: 4096,
                flags: POWER_OF_TWO,
            },
        ];
        let ask = |method, unit, interval| {
            fits(
                &choices,
                Request {
                    method,
                    unit,
                    interval,
                },
            )
        };
        assert_eq!(ask(Method::HostTrap, Unit::Time, 100), Ok(()));
        assert_eq!(ask(Method::Stochastic, Unit::Cycles, 512), Ok(()));
        for (answer, why) in [
            (
                ask(Method::HostTrap, Unit::Time, 101),
                "the interval 101 is not between 1 and 100",
            ),
            (
                ask(Method::Stochastic, Unit::Cycles, 500),
                "the interval 500 is not a power of two",
            ),
            (
                ask(Method::HostTrap, Unit::Cycles, 1),
                "the device offers host_trap by time, stochastic by cycles",
            ),
        ] {
            assert_eq!(answer, Err(why.to_owned()));
        }
        assert!(fits(&[], Request::of("host_trap", "time", "1").unwrap()).is_err());
    }
}

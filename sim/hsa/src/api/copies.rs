use crate::machine::{COPY_TIMES, Machine, answer, with};
use crate::signals::{EVENT, Signal, put, signal, wait};
use crate::{Status, status};
use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::atomic::Ordering::SeqCst;

/// The most bytes of one linear copy packet, and of one fill packet.
const LINEAR: u64 = 1 << 30;
/// See [`LINEAR`].
const FILL: u64 = 1 << 22;
/// The engines: one for copies to the host, and one for all others.
const TO_HOST: u32 = 0;
/// See [`TO_HOST`].
const FROM_HOST: u32 = 1;

/// DMA packets as the engines of gfx9 take them (source: the packets that `midair-gpu-model`
/// decodes).
#[derive(Default)]
struct Packets(Vec<u32>);

impl Packets {
    fn push(&mut self, head: u32, rest: &[u32]) {
        self.0.push(head);
        self.0.extend(rest);
    }
    fn address(at: u64) -> [u32; 2] {
        [at as u32, (at >> 32) as u32]
    }
    /// Adds packets that wait until both halves of a signal's value are 0.
    fn poll(&mut self, handle: u64) {
        let value = handle + offset_of!(Signal, value) as u64;
        for half in [value, value + 4] {
            let [low, high] = Packets::address(half);
            self.push(8 | 3 << 28 | 1 << 31, &[low, high, 0, u32::MAX, 0]);
        }
    }
    fn timestamp(&mut self, at: u64) {
        self.push(13 | 2 << 8, &Packets::address(at));
    }
    fn copy(&mut self, to: u64, from: u64, bytes: u64) {
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(LINEAR);
            let ([sl, sh], [dl, dh]) = (Packets::address(from + done), Packets::address(to + done));
            self.push(1, &[(part - 1) as u32, 0, sl, sh, dl, dh]);
            done += part;
        }
    }
    fn fill(&mut self, at: u64, value: u32, bytes: u64) {
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(FILL);
            let [low, high] = Packets::address(at + done);
            self.push(11 | 2 << 30, &[low, high, value, (part - 1) as u32]);
            done += part;
        }
    }
    /// Adds packets that subtract one from the signal, then raise its event.
    fn complete(&mut self, handle: u64) {
        let [low, high] = Packets::address(handle + offset_of!(Signal, value) as u64);
        self.push(10 | 47 << 25, &[low, high, u32::MAX, u32::MAX, 0, 0, 0]);
        self.push(6, &[EVENT]);
    }
    /// Returns the packets of a job: dependencies, then `body` between its two times, then the
    /// completion.
    fn job(deps: &[u64], completion: u64, body: impl FnOnce(&mut Packets)) -> Packets {
        let mut packets = Packets::default();
        for dep in deps.iter().filter(|dep| **dep != 0) {
            packets.poll(*dep);
        }
        let timed = completion != 0 && COPY_TIMES.load(SeqCst);
        if timed {
            packets.timestamp(completion + offset_of!(Signal, start) as u64);
        }
        body(&mut packets);
        if timed {
            packets.timestamp(completion + offset_of!(Signal, end) as u64);
        }
        if completion != 0 {
            packets.complete(completion);
        }
        packets
    }
}

/// Returns which GPU's engine copies bytes between two agents: the source's, or the destination's
/// if the source is the host.
fn engine(machine: &Machine, to: u64, from: u64) -> Result<(u64, u32), Status> {
    let is_gpu = |agent: u64| -> Result<bool, Status> {
        let found = machine.agent(agent).ok_or(status::INVALID_AGENT)?;
        Ok(found.is_gpu())
    };
    match (is_gpu(from)?, is_gpu(to)?) {
        (true, false) => Ok((from, TO_HOST)),
        (true, true) => Ok((from, FROM_HOST)),
        (false, true) => Ok((to, FROM_HOST)),
        // There is no engine between hosts. AMD's runtime copies these bytes itself.
        (false, false) => Err(status::INVALID_AGENT),
    }
}

/// Returns the signals to wait for.
///
/// # Safety
/// `list` must be null or have `count` handles.
unsafe fn signals(count: u32, list: *const u64) -> Vec<u64> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: `list` is not null, and the caller promises that it has `count` handles.
    unsafe { std::slice::from_raw_parts(list, count as usize) }.to_vec()
}

pub unsafe extern "C" fn hsa_amd_memory_async_copy(
    to: *mut c_void,
    to_agent: u64,
    from: *const c_void,
    from_agent: u64,
    bytes: usize,
    count: u32,
    deps: *const u64,
    completion: u64,
) -> Status {
    // SAFETY: the caller promises a list of this length.
    let deps = unsafe { signals(count, deps) };
    answer(with(|machine| {
        let (agent, engine) = engine(machine, to_agent, from_agent)?;
        let packets = Packets::job(&deps, completion, |packets| {
            packets.copy(
                to.expose_provenance() as u64,
                from.expose_provenance() as u64,
                bytes as u64,
            );
        });
        machine.submit(agent, engine, &packets.0)
    }))
}

pub unsafe extern "C" fn hsa_amd_memory_async_copy_on_engine(
    to: *mut c_void,
    to_agent: u64,
    from: *const c_void,
    from_agent: u64,
    bytes: usize,
    count: u32,
    deps: *const u64,
    completion: u64,
    engine_id: u32,
    _force: bool,
) -> Status {
    if !engine_id.is_power_of_two() {
        return status::INVALID_ARGUMENT;
    }
    // SAFETY: the caller promises a list of this length.
    let deps = unsafe { signals(count, deps) };
    answer(with(|machine| {
        let (agent, _) = engine(machine, to_agent, from_agent)?;
        let engines = machine
            .agent(agent)
            .map_or(0, |agent| agent.property("num_sdma_engines"));
        let engine = engine_id.trailing_zeros();
        if u64::from(engine) >= engines {
            return Err(status::INVALID_ARGUMENT);
        }
        let packets = Packets::job(&deps, completion, |packets| {
            packets.copy(
                to.expose_provenance() as u64,
                from.expose_provenance() as u64,
                bytes as u64,
            );
        });
        machine.submit(agent, engine, &packets.0)
    }))
}

pub unsafe extern "C" fn hsa_amd_memory_copy_engine_status(
    to_agent: u64,
    from_agent: u64,
    mask: *mut u32,
) -> Status {
    answer(with(|machine| {
        let (_, engine) = engine(machine, to_agent, from_agent)?;
        // SAFETY: the caller promises that the out pointer is null or writable.
        match unsafe { put(mask, 1 << engine) } {
            0 => Ok(()),
            status => Err(status),
        }
    }))
}

/// `hsa_pitched_ptr_t`.
#[repr(C)]
pub struct Pitched {
    base: *mut c_void,
    pitch: usize,
    slice: usize,
}

impl Pitched {
    /// Returns the five words of one side of a rectangular copy, in elements of one byte; `None` if
    /// they do not fit into the packet.
    fn side(&self, [x, y, z]: [u32; 3]) -> Option<[u32; 5]> {
        let [low, high] = Packets::address(self.base.expose_provenance() as u64);
        let (row, slice) = (self.pitch.checked_sub(1)?, self.slice.max(self.pitch) - 1);
        let fits = x < 1 << 14 && y < 1 << 14 && z < 1 << 11 && row < 1 << 19 && slice < 1 << 28;
        fits.then_some([low, high, x | y << 16, z | (row as u32) << 13, slice as u32])
    }
}

pub unsafe extern "C" fn hsa_amd_memory_async_copy_rect(
    to: *const Pitched,
    to_offset: *const [u32; 3],
    from: *const Pitched,
    from_offset: *const [u32; 3],
    range: *const [u32; 3],
    agent: u64,
    direction: u32,
    count: u32,
    deps: *const u64,
    completion: u64,
) -> Status {
    // SAFETY: the caller promises that each struct and the list of signals are null or valid.
    let (parts, deps) = unsafe {
        let parts = (
            to.as_ref(),
            to_offset.as_ref(),
            from.as_ref(),
            from_offset.as_ref(),
            range.as_ref(),
        );
        (parts, signals(count, deps))
    };
    let (Some(to), Some(to_offset), Some(from), Some(from_offset), Some(range)) = parts else {
        return status::INVALID_ARGUMENT;
    };
    let [x, y, z] = *range;
    let (Some(from), Some(to)) = (from.side(*from_offset), to.side(*to_offset)) else {
        return status::INVALID_ARGUMENT;
    };
    if !(1..=1 << 14).contains(&x) || !(1..=1 << 14).contains(&y) || !(1..=1 << 11).contains(&z) {
        return status::INVALID_ARGUMENT;
    }
    // hsa_amd_copy_direction_t: 2 is device to host.
    let engine = if direction == 2 { TO_HOST } else { FROM_HOST };
    answer(with(|machine| {
        let found = machine.agent(agent).ok_or(status::INVALID_AGENT)?;
        if !found.is_gpu() {
            return Err(status::INVALID_AGENT);
        }
        let packets = Packets::job(&deps, completion, |packets| {
            packets.push(1 | 4 << 8, &[from, to].concat());
            packets.0.extend([(x - 1) | (y - 1) << 16, z - 1]);
        });
        machine.submit(agent, engine, &packets.0)
    }))
}

/// Fills `count` words and waits for the end.
pub fn fill_on(agent: u64, at: u64, value: u32, count: u64) -> Status {
    let done = Signal::make_user(1, EVENT);
    let mut packets = Packets::default();
    packets.fill(at, value, count * 4);
    packets.complete(done);
    let status = answer(with(|machine| machine.submit(agent, FROM_HOST, &packets.0)));
    if status == status::SUCCESS
        && let Some(signal) = signal(done)
    {
        wait(signal, 2, 1, u64::MAX);
    }
    // SAFETY: the signal is ours alone, and we have waited for the engine's last access to it, the
    // addition.
    unsafe { Signal::destroy(done) };
    status
}

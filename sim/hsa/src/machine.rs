//! The machine: agents, their memory, queues and DMA engines, all behind one lock, which submitting
//! a packet does not take.

use crate::elf::Kernel;
use crate::signals::{KIND_DOORBELL, Signal, wake};
use crate::{Status, status};
use midair_gpu_model::engine::Place;
use midair_gpu_model::{Device, QUEUES_PER_NODE, Served};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Handles of agents: this plus the node's number. Handles of pools: this plus 16 times the node's
/// number plus 0x1001.
const AGENTS: u64 = 0x5157_0000_0000;
/// The size in bytes of a DMA engine's ring.
const SDMA_RING: u64 = 1 << 20;

/// One node of the topology.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Its handle.
    pub handle: u64,
    /// Its number.
    pub node: u32,
    /// The contents of the file `properties`.
    pub properties: HashMap<String, u64>,
    /// Bytes of its memory.
    pub memory: u64,
    /// The driver's name.
    pub model_name: String,
}

impl Agent {
    /// Returns a property, 0 where there is none.
    pub fn property(&self, name: &str) -> u64 {
        self.properties.get(name).copied().unwrap_or(0)
    }
    /// Returns whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.property("simd_count") != 0
    }
    /// Returns "gfx942" and the like, or "cpu".
    pub fn name(&self) -> String {
        if !self.is_gpu() {
            return "cpu".to_owned();
        }
        let version = self.property("gfx_target_version");
        let (major, minor, step) = (version / 10_000, version / 100 % 100, version % 100);
        format!("gfx{major}{minor:x}{step:x}")
    }
    /// Returns the handle of its one pool.
    pub fn pool(&self) -> u64 {
        AGENTS + 16 * u64::from(self.node) + 0x1001
    }
}

/// `amd_queue_t` (source: the public `amd_hsa_queue.h`): the words that a runtime, an application
/// or a profiler touches.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Queue {
    kind: u32,
    features: u32,
    base: u64,
    doorbell: u64,
    /// The number of packets.
    pub size: u32,
    reserved: u32,
    id: u64,
    caps: u32,
    unused: [u32; 3],
    /// `write_dispatch_id`.
    pub write: AtomicU64,
    apertures: [u32; 16],
    /// `read_dispatch_id`.
    pub read: AtomicU64,
    scratch: [u32; 11],
    /// `queue_properties`.
    pub properties: AtomicU32,
    more: [u32; 18],
}

const _: () = assert!(
    std::mem::offset_of!(Queue, write) == 56
        && std::mem::offset_of!(Queue, read) == 128
        && std::mem::offset_of!(Queue, properties) == 180
        && size_of::<Queue>() == 256
);

/// Bits of [`Queue::properties`]: 64-bit pointers, and times requested.
const IS_PTR64: u32 = 1 << 1;
/// See [`IS_PTR64`].
pub const ENABLE_PROFILING: u32 = 1 << 3;

/// `hsa_amd_queue_engine_t`: the engine that processes a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Works {
    /// Packets of AQL.
    Compute = 0,
    /// Packets of a DMA engine, whose sizes and indices count bytes.
    Sdma = 1,
}

/// The parts that belong to a queue.
pub struct Owned {
    /// Its agent.
    pub agent: u64,
    /// The engine that processes it.
    pub works: Works,
    ring: Block,
    doorbell: u64,
    word: *mut AtomicU64,
    served: Served,
}

// SAFETY: the pointer is to a leaked box that only `destroy_queue` frees.
unsafe impl Send for Owned {}

/// A DMA engine.
pub struct Engine {
    ring: Block,
    /// Write index, read index and doorbell, in bytes.
    words: Box<[AtomicU64; 3]>,
    served: Served,
}

/// Memory from the system.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Block {
    /// Maps zeroed pages.
    pub fn map(bytes: u64) -> Option<Block> {
        // SAFETY: this creates a fresh private mapping at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                usize::try_from(bytes).ok()?,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        (at != libc::MAP_FAILED).then(|| Block {
            at: at.expose_provenance() as u64,
            bytes,
        })
    }
    /// Unmaps the memory.
    pub fn unmap(self) {
        // SAFETY: it is a midair mapping that its owner no longer uses.
        unsafe {
            libc::munmap(
                std::ptr::with_exposed_provenance_mut(self.at as usize),
                self.bytes as usize,
            )
        };
    }
}

/// An allocation from a pool.
#[derive(Debug, Clone, Copy)]
pub struct Allocation {
    /// The memory.
    pub block: Block,
    /// The number of bytes that were requested.
    pub asked: u64,
    /// The agent whose memory it is.
    pub agent: u64,
}

/// A symbol of an executable.
#[derive(Debug, Clone)]
pub struct Symbol {
    /// The kernel.
    pub kernel: Kernel,
    /// Address of its descriptor.
    pub object: u64,
    /// Its agent.
    pub agent: u64,
    /// Its executable.
    pub executable: u64,
}

/// A loaded code object.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Its executable.
    pub executable: u64,
    /// Its agent.
    pub agent: u64,
    /// Where it was loaded.
    pub block: Block,
    /// The ELF file in memory.
    pub file: Block,
}

/// The state of the library.
#[derive(Default)]
pub struct Machine {
    /// The number of calls of `hsa_init` minus the number of calls of `hsa_shut_down`.
    pub opened: u32,
    /// Agents by node.
    pub agents: Vec<Agent>,
    device: Option<Device>,
    queues: BTreeMap<u64, Owned>,
    engines: BTreeMap<(u64, u32), Engine>,
    numbers: HashMap<u32, u32>,
    /// Allocations by address.
    pub allocations: BTreeMap<u64, Allocation>,
    /// Code objects to be loaded, by the handle of their reader.
    pub readers: BTreeMap<u64, Block>,
    /// Whether each executable is frozen.
    pub executables: BTreeMap<u64, bool>,
    /// Symbols by handle.
    pub symbols: BTreeMap<u64, Symbol>,
    /// Loaded code objects by handle.
    pub objects: BTreeMap<u64, Loaded>,
    next: u64,
}

static MACHINE: Mutex<Option<Machine>> = Mutex::new(None);
/// `hsa_amd_profiling_async_copy_enable`.
pub static COPY_TIMES: AtomicBool = AtomicBool::new(false);

/// The locked machine, open or not.
pub struct Held(MutexGuard<'static, Option<Machine>>);

impl Held {
    /// Takes the lock.
    pub fn take() -> Held {
        let mut guard = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        guard.get_or_insert_default();
        Held(guard)
    }
    /// Returns the machine if it is open.
    pub fn open(&mut self) -> Option<&mut Machine> {
        self.0.as_mut().filter(|machine| machine.opened != 0)
    }
    /// Returns the machine.
    pub fn any(&mut self) -> &mut Machine {
        self.0.get_or_insert_default()
    }
}

/// Runs `act` on the open machine.
pub fn with<T>(act: impl FnOnce(&mut Machine) -> Result<T, Status>) -> Result<T, Status> {
    let mut held = Held::take();
    act(held.open().ok_or(status::NOT_INITIALIZED)?)
}

/// Returns a result in the form of the C interface.
pub fn answer(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(status::SUCCESS)
}

unsafe extern "C" fn interrupt(_data: *mut c_void, _event: u32) {
    wake();
}

fn agents_of(topology: &Path) -> Vec<Agent> {
    let read = |path: &str| std::fs::read_to_string(topology.join("nodes").join(path)).ok();
    let pairs = |text: &str| -> HashMap<String, u64> {
        let pair = |line: &str| {
            let (name, value) = line.trim().split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        text.lines().filter_map(pair).collect()
    };
    (0..)
        .map_while(|node| {
            let properties = pairs(&read(&format!("{node}/properties"))?);
            let bank = read(&format!("{node}/mem_banks/0/properties")).unwrap_or_default();
            let name = read(&format!("{node}/name")).unwrap_or_default();
            Some(Agent {
                handle: AGENTS + u64::from(node),
                node,
                properties,
                memory: pairs(&bank).get("size_in_bytes").copied().unwrap_or(0),
                model_name: name.trim().to_owned(),
            })
        })
        .collect()
}

impl Machine {
    /// Does the work of `hsa_init`.
    pub fn enter(&mut self) -> Result<(), Status> {
        if self.opened == 0 {
            // AMD's runtime returns the same status where there is no driver.
            let topology =
                std::env::var_os("HSA_MODEL_TOPOLOGY").ok_or(status::OUT_OF_RESOURCES)?;
            self.agents = agents_of(Path::new(&topology));
            if self.agents.is_empty() {
                return Err(status::OUT_OF_RESOURCES);
            }
            self.device = Some(Device::of_environment(interrupt));
        }
        self.opened += 1;
        Ok(())
    }

    /// Does the work of `hsa_shut_down`. Returns what has to be ended without the lock.
    pub fn leave(&mut self) -> Vec<Served> {
        self.opened -= 1;
        if self.opened != 0 {
            return Vec::new();
        }
        // Rings and words stay mapped, since the application may still access a queue that it did
        // not destroy.
        let queues = std::mem::take(&mut self.queues).into_values();
        let mut served: Vec<Served> = queues.map(|queue| queue.served).collect();
        for engine in std::mem::take(&mut self.engines).into_values() {
            std::mem::forget(engine.words);
            served.push(engine.served);
        }
        self.device = None;
        served
    }

    /// Returns the agent with this handle.
    pub fn agent(&self, handle: u64) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.handle == handle)
    }

    /// Returns the agent that has this pool.
    pub fn agent_of_pool(&self, pool: u64) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.pool() == pool)
    }

    /// Returns the allocation that contains an address.
    pub fn allocation(&self, at: u64) -> Option<&Allocation> {
        let (_, found) = self.allocations.range(..=at).next_back()?;
        (at - found.block.at < found.block.bytes).then_some(found)
    }

    /// Returns a handle that nothing else has.
    pub fn fresh(&mut self) -> u64 {
        self.next += 1;
        0x5158_0000_0000 + self.next
    }

    fn number(&mut self, node: u32) -> u32 {
        let count = self.numbers.entry(node).or_default();
        *count += 1;
        node * QUEUES_PER_NODE + *count - 1
    }

    /// Creates a queue with a ring of `ring_bytes`.
    pub fn create_queue(
        &mut self,
        agent: u64,
        kind: u32,
        works: Works,
        ring_bytes: u64,
    ) -> Result<*mut Queue, Status> {
        let found = self.agent(agent).ok_or(status::INVALID_AGENT)?;
        if !found.is_gpu() || !ring_bytes.is_power_of_two() || !(64..1 << 30).contains(&ring_bytes)
        {
            return Err(status::INVALID_QUEUE_CREATION);
        }
        let number = self.number(found.node);
        let ring = Block::map(ring_bytes).ok_or(status::OUT_OF_RESOURCES)?;
        let (size, packets) = match works {
            Works::Compute => (ring_bytes / 64, ring_bytes / 64),
            Works::Sdma => (ring_bytes, 0),
        };
        for packet in 0..packets {
            let header =
                std::ptr::with_exposed_provenance_mut::<u16>((ring.at + packet * 64) as usize);
            // SAFETY: it is inside the ring that was just mapped, which no other code knows; 1 is
            // the type of an invalid packet.
            unsafe { header.write(1) };
        }
        let word = Box::into_raw(Box::new(AtomicU64::new(0)));
        let doorbell = Signal::make(KIND_DOORBELL, word.expose_provenance() as i64, 0);
        let queue = Box::into_raw(Box::new(Queue {
            kind,
            features: 1,
            base: ring.at,
            doorbell,
            size: size as u32,
            reserved: 0,
            id: number.into(),
            caps: 0,
            unused: [0; 3],
            write: AtomicU64::new(0),
            apertures: [0; 16],
            read: AtomicU64::new(0),
            scratch: [0; 11],
            properties: AtomicU32::new(IS_PTR64),
            more: [0; 18],
        }));
        let at = queue.expose_provenance() as u64;
        if let Some(signal) = crate::signals::signal(doorbell) {
            signal.queue.store(at, std::sync::atomic::Ordering::SeqCst);
        }
        let place = Place {
            number,
            ring: ring.at,
            ring_bytes,
            write_index_at: at + std::mem::offset_of!(Queue, write) as u64,
            read_index_at: at + std::mem::offset_of!(Queue, read) as u64,
            doorbell_at: word.expose_provenance() as u64,
        };
        let device = self.device.as_ref().ok_or(status::NOT_INITIALIZED)?;
        let served = device
            .serve(works == Works::Sdma, place)
            .map_err(|_| status::OUT_OF_RESOURCES)?;
        let owned = Owned {
            agent,
            works,
            ring,
            doorbell,
            word,
            served,
        };
        self.queues.insert(at, owned);
        Ok(queue)
    }

    /// Removes a queue. Call [`Owned::end`] afterwards, without the lock.
    pub fn remove_queue(&mut self, queue: *mut Queue) -> Option<Owned> {
        self.queues.remove(&(queue.expose_provenance() as u64))
    }

    /// Returns the agent of a queue, and the engine that processes it.
    pub fn queue_facts(&self, queue: *mut Queue) -> Option<(u64, Works)> {
        let owned = self.queues.get(&(queue.expose_provenance() as u64))?;
        Some((owned.agent, owned.works))
    }

    /// Submits DMA packets to an engine of a GPU, which is created at the first use: engine 0
    /// copies to the host, 1 from the host and between GPUs.
    pub fn submit(&mut self, agent: u64, engine: u32, packets: &[u32]) -> Result<(), Status> {
        use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
        if !self.engines.contains_key(&(agent, engine)) {
            let node = self.agent(agent).ok_or(status::INVALID_AGENT)?.node;
            let number = self.number(node);
            let ring = Block::map(SDMA_RING).ok_or(status::OUT_OF_RESOURCES)?;
            let words = Box::new([const { AtomicU64::new(0) }; 3]);
            let at = |index: usize| words.as_ptr().wrapping_add(index).expose_provenance() as u64;
            let place = Place {
                number,
                ring: ring.at,
                ring_bytes: SDMA_RING,
                write_index_at: at(0),
                read_index_at: at(1),
                doorbell_at: at(2),
            };
            let device = self.device.as_ref().ok_or(status::NOT_INITIALIZED)?;
            let served = device
                .serve(true, place)
                .map_err(|_| status::OUT_OF_RESOURCES)?;
            let made = Engine {
                ring,
                words,
                served,
            };
            self.engines.insert((agent, engine), made);
        }
        let engine = self
            .engines
            .get(&(agent, engine))
            .ok_or(status::INVALID_AGENT)?;
        let [write, read, doorbell] = &*engine.words;
        let begin = write.load(Acquire);
        let end = begin + 4 * packets.len() as u64;
        // If the ring is full, wait: the engine processes it by itself, unless it waits for a
        // signal that this very thread has yet to set. A megabyte of packets ahead of that is an
        // error of the application.
        while end - read.load(Acquire) > SDMA_RING {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        for (index, dword) in packets.iter().enumerate() {
            let at = engine.ring.at + (begin + 4 * index as u64) % SDMA_RING;
            // SAFETY: it is inside the engine's ring, in a part that the engine has processed
            // (checked above). Only the holder of the lock writes there.
            unsafe {
                std::ptr::with_exposed_provenance_mut::<u32>(at as usize).write_volatile(*dword)
            };
        }
        write.store(end, Release);
        doorbell.store(end, SeqCst);
        Ok(())
    }
}

impl Owned {
    /// Ends the queue and frees its memory.
    pub fn end(self, queue: *mut Queue) {
        self.served.stop();
        self.ring.unmap();
        // SAFETY: these are the queue's own doorbell and memory. The application does not use them
        // any more, nor does the device.
        unsafe {
            Signal::destroy(self.doorbell);
            drop(Box::from_raw(self.word));
            drop(Box::from_raw(queue));
        }
    }
}

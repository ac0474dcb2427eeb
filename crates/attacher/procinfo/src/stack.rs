//! Call stacks of sleeping threads, from the unwind tables of the target's own files.

use std::collections::{HashMap, HashSet};

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module as FramehopModule, Unwinder};
use midair_ptrace::{FrameRegisters, Memory, RemoteAddr};

use crate::arch::{self, FrameCache, FrameUnwinder};
use crate::module::Modules;
use crate::unwind_limits::{Budget, Shared, Tables};

/// The most frames that are looked at. A deeper stack counts as not unwound to its root.
pub const MOST_FRAMES: usize = 4096;
/// The stack bytes that are read at first.
const FIRST_BYTES: u64 = 16 * 1024;
/// The most stack bytes that are looked at.
const MOST_BYTES: u64 = 1 << 20;
/// The same limit for a stack in memory that is not in the list of mappings.
const UNKNOWN_BYTES: u64 = 64 * 1024;

/// Where a thread stands: the registers with which unwinding starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackPosition {
    /// Address of the next instruction.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// The other registers that unwinding needs. None when they are not known, because the thread
    /// was not stopped.
    pub frame: Option<FrameRegisters>,
}

/// One frame of a call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// An address inside the call.
    pub address: u64,
    /// Index of the module that the address lies in, see [`Modules::list`].
    pub module: Option<usize>,
    /// Names of the function. Empty when it has no symbol.
    pub names: Vec<String>,
}

/// A call stack, innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// The frames.
    pub frames: Vec<Frame>,
    /// Whether the outermost frame is one where threads or programs start, as the unwind tables
    /// say.
    pub rooted: bool,
    /// Whether the result depends on registers that were not known.
    pub needs_frame_pointer: bool,
    /// The stack bytes from the stack pointer to the outermost frame. The result stays valid as
    /// long as these bytes and the registers are the same.
    pub bytes: Vec<u8>,
}

/// Unwinds the stacks of one process. Each file is read once.
pub struct Walker<'a> {
    modules: &'a Modules,
    memory: Memory,
    unwinder: FrameUnwinder,
    cache: FrameCache,
    tried: HashSet<usize>,
    /// The unwind tables of the modules that were added. They are inspected before they are
    /// evaluated.
    tables: HashMap<usize, Tables>,
}

impl std::fmt::Debug for Walker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walker")
            .field("tried", &self.tried)
            .finish_non_exhaustive()
    }
}

/// The result of one pass over a stack.
struct Pass {
    addresses: Vec<u64>,
    ended: bool,
    /// Whether the pass asked for bytes above those that it was given.
    short: bool,
    highest: u64,
}

impl<'a> Walker<'a> {
    /// Makes a walker for the process with these modules and this memory.
    pub fn new(modules: &'a Modules, memory: Memory) -> Self {
        Walker {
            modules,
            memory,
            unwinder: FrameUnwinder::new(),
            cache: FrameCache::new(),
            tried: HashSet::new(),
            tables: HashMap::new(),
        }
    }

    /// Unwinds the stack of a thread that sleeps at `place`.
    pub fn walk(&mut self, place: StackPosition) -> Walk {
        loop {
            match self.walk_known(place) {
                Ok(walk) => return walk,
                Err(module) => self.learn(module),
            }
        }
    }

    /// Unwinds a stack as `walk` does, but opens no file, for use while the thread is stopped.
    ///
    /// # Errors
    /// The index of a module on the stack that has not been read yet. Call [`Walker::learn`] for it
    /// and walk again.
    pub fn walk_known(&mut self, place: StackPosition) -> Result<Walk, usize> {
        // A stack in a mapping that is newer than the list is read up to a limit of its own.
        let most = match self.modules.mapping_at(place.sp) {
            Some(mapping) => mapping.end.saturating_sub(place.sp).min(MOST_BYTES),
            None => UNKNOWN_BYTES,
        };
        // Most stacks are short: what is read at first is enough for them.
        let mut len = FIRST_BYTES.min(most);
        loop {
            let mut stack = vec![0; usize::try_from(len).unwrap_or(0)];
            let readable = self
                .memory
                .read_some(RemoteAddr::new(place.sp), &mut stack)
                .unwrap_or(0);
            let all_there = readable == stack.len();
            stack.truncate(readable);
            let pass = self.pass(place, place.frame.unwrap_or(FrameRegisters::all(0)), &stack);
            // Where the registers are not known, two passes with different values are made. A
            // result that is the same for both does not depend on them.
            let unknown = FrameRegisters::all(0x5a5a_5a5a_5a5a_5a58);
            let other = match place.frame {
                Some(_) => None,
                None => Some(self.pass(place, unknown, &stack)),
            };
            if pass.short && all_there && len < most {
                len = len.saturating_mul(8).min(most);
                continue;
            }
            let all = [Some(&pass), other.as_ref()];
            let news = all
                .iter()
                .flatten()
                .flat_map(|pass| &pass.addresses)
                .filter_map(|&address| self.modules.at(address))
                .find(|module| !self.tried.contains(module));
            if let Some(module) = news {
                return Err(module);
            }
            let needs_frame_pointer = other.is_some_and(|other| other.addresses != pass.addresses);
            return Ok(self.told(place, pass, needs_frame_pointer, stack));
        }
    }

    fn told(
        &self,
        place: StackPosition,
        pass: Pass,
        needs_frame_pointer: bool,
        mut stack: Vec<u8>,
    ) -> Walk {
        let used = usize::try_from(pass.highest.saturating_sub(place.sp))
            .unwrap_or(0)
            .min(stack.len());
        stack.truncate(used);
        let frames: Vec<Frame> = pass
            .addresses
            .into_iter()
            .map(|address| self.frame(address))
            .collect();
        let rooted = pass.ended
            && !needs_frame_pointer
            && frames.last().is_some_and(|last| self.is_root(last));
        Walk {
            frames,
            rooted,
            needs_frame_pointer,
            bytes: stack,
        }
    }

    /// Reads the unwind tables and names of a module, once.
    pub fn learn(&mut self, module: usize) {
        if self.tried.contains(&module) {
            return;
        }
        self.add(module);
        // Names are read when they are first asked for, which could be while a thread is stopped.
        // So they are read now.
        if let Ok(loaded) = self.modules.load(module) {
            let _warm = loaded.names_at(0);
        }
    }

    fn pass(&mut self, place: StackPosition, known: FrameRegisters, stack: &[u8]) -> Pass {
        let (mut highest, mut short) = (place.sp, false);
        let budget = Budget::of_a_pass();
        let mut read = |address: u64| {
            let at = usize::try_from(address.checked_sub(place.sp).ok_or(())?).map_err(|_| ())?;
            let bytes = stack.get(at..at.checked_add(8).ok_or(())?);
            short |= bytes.is_none();
            let bytes = bytes.ok_or(())?;
            highest = highest.max(address.saturating_add(8));
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| ())?))
        };
        let mut addresses = Vec::new();
        let mut ended = false;
        let regs = arch::unwind_registers(place.pc, place.sp, known);
        let mut frames = self
            .unwinder
            .iter_frames(place.pc, regs, &mut self.cache, &mut read);
        while addresses.len() < MOST_FRAMES {
            // The next step evaluates the unwind entry for the last address.
            if let Some(&last) = addresses.last()
                && !may_step(self.modules, &self.tables, last, &budget)
            {
                break;
            }
            match frames.next() {
                Ok(Some(frame)) => addresses.push(match frame {
                    // The address after the system call's instruction lies in the same function.
                    FrameAddress::InstructionPointer(pc) => pc,
                    FrameAddress::ReturnAddress(_) => frame.address_for_lookup(),
                }),
                Ok(None) => {
                    ended = true;
                    break;
                }
                Err(_) => break,
            }
        }
        Pass {
            addresses,
            ended,
            short,
            highest,
        }
    }

    fn add(&mut self, index: usize) {
        self.tried.insert(index);
        let (Some(module), Ok(loaded)) = (self.modules.list.get(index), self.modules.load(index))
        else {
            return;
        };
        let Ok([frames, header]) = loaded.elf.sections([b".eh_frame", b".eh_frame_hdr"]) else {
            return;
        };
        let text = loaded.elf.section_range(b".text").ok().flatten();
        let Some(frames) = frames else { return };
        let end = module.parts.last().map_or(module.base, |part| part.end);
        let start =
            |piece: Option<&crate::elf::Piece>| piece.map_or(0, |piece| piece.range().start);
        // The same bases as framehop uses. Neither of the two sets the base of the global offset
        // table.
        let bases = gimli::BaseAddresses::default()
            .set_eh_frame(frames.range().start)
            .set_eh_frame_hdr(start(header.as_ref()))
            .set_text(text.as_ref().map_or(0, |range| range.start))
            .set_got(0);
        let frames_range = frames.range();
        let frames = Shared::new(frames.bytes);
        let header_range = header.as_ref().map(crate::elf::Piece::range);
        let header = header.map(|piece| Shared::new(piece.bytes));
        let tables = Tables::new(frames.clone(), header.clone(), bases);
        self.tables.insert(index, tables);
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: text,
            eh_frame_svma: Some(frames_range),
            eh_frame: Some(frames),
            eh_frame_hdr_svma: header_range,
            eh_frame_hdr: header,
            ..Default::default()
        };
        // framehop assumes that `base_svma` lies at the base address. So the base is the bias here,
        // not the first mapping.
        self.unwinder.add_module(FramehopModule::new(
            crate::show(&module.path),
            module.base..end,
            loaded.bias,
            sections,
        ));
    }

    /// Returns the function that the call instruction before a return address calls. `address` is
    /// the address of the instruction's last byte, as in [`Frame::address`]. Calls through a
    /// procedure linkage table or a global offset table are followed. The targets of other calls,
    /// and of jumps through registers, are not known.
    pub fn called(&self, address: u64) -> Option<u64> {
        let target = arch::called(&self.memory, address.wrapping_add(1))?;
        Some(arch::through_linkage_table(&self.memory, target).unwrap_or(target))
    }

    /// Returns the address of the word through which the call instruction before a return address
    /// calls: one of a global offset table. `address` is as in [`Walker::called`].
    pub fn call_slot(&self, address: u64) -> Option<u64> {
        arch::call_slot(&self.memory, address.wrapping_add(1))
    }

    /// Names of the function at an address of the target.
    pub fn names_at(&self, address: u64) -> Vec<String> {
        self.frame(address).names
    }

    fn frame(&self, address: u64) -> Frame {
        let module = self.modules.at(address);
        let names = module
            .and_then(|index| self.modules.load(index).ok())
            .map(|loaded| loaded.names_at(address))
            .unwrap_or_default();
        Frame {
            address,
            module,
            names,
        }
    }

    /// Whether a stack that ends in this frame is complete. The unwind tables end a stack in the
    /// program's `_start` and in the C library's clone. A null frame pointer in code without tables
    /// ends it as well, which proves nothing.
    fn is_root(&self, frame: &Frame) -> bool {
        let Some(index) = frame.module else {
            return false;
        };
        let Some(module) = self.modules.list.get(index) else {
            return false;
        };
        let name = module.file_name();
        if name.starts_with(b"libc.so") || name.starts_with(b"libc-") {
            return true;
        }
        self.modules.load(index).is_ok_and(|loaded| {
            let entry = loaded.elf.entry.wrapping_add(loaded.bias);
            loaded.elf.interpreter.is_some() && frame.address.wrapping_sub(entry) < 64
        })
    }
}

/// Whether the unwind tables may be evaluated for `address`. For an address in a module whose
/// tables were not added this is true: the unwinder uses frame pointers there and evaluates no
/// tables.
fn may_step(
    modules: &Modules,
    tables: &HashMap<usize, Tables>,
    address: u64,
    budget: &Budget,
) -> bool {
    let Some(index) = modules.at(address) else {
        return true;
    };
    match (tables.get(&index), modules.load(index)) {
        (Some(tables), Ok(loaded)) => {
            tables.are_harmless_at(address.wrapping_sub(loaded.bias), budget)
        }
        _ => true,
    }
}

//! Call stacks of sleeping threads, from the unwind tables of the target's own files.

use std::collections::{HashMap, HashSet};

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module as FramehopModule, Unwinder};
use midair_ptrace::{FrameRegisters, Memory, RemoteAddr};

use crate::arch::{self, FrameCache, FrameUnwinder};
use crate::module::Modules;
use crate::unwind_limits::{Budget, Shared, Tables};

/// Frames looked at; deeper stacks count as not unwound to their root.
const MOST_FRAMES: usize = 4096;
/// Stack bytes read at first.
const FIRST_BYTES: u64 = 16 * 1024;
/// Stack bytes looked at.
const MOST_BYTES: u64 = 1 << 20;
/// The same for a stack in memory that is not in the list.
const UNKNOWN_BYTES: u64 = 64 * 1024;

/// Where a thread stands: the registers that unwinding begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackPosition {
    /// Address of the next instruction.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// The other registers that unwinding needs; None when they are not known (the thread was not
    /// stopped).
    pub frame: Option<FrameRegisters>,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// An address inside the call.
    pub address: u64,
    /// Index of the module that it lies in, see [`Modules::list`].
    pub module: Option<usize>,
    /// Names of the function, none when it has no symbol.
    pub names: Vec<String>,
}

/// A call stack, innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Frames.
    pub frames: Vec<Frame>,
    /// The outermost frame is where threads or programs begin, as the unwind tables say.
    pub rooted: bool,
    /// The result hangs on registers that were not known.
    pub needs_frame_pointer: bool,
    /// The stack bytes from the stack pointer to the outermost frame: as long as they and the
    /// registers are the same, so is this result.
    pub bytes: Vec<u8>,
}

/// Unwinds stacks of one process; files are read once.
pub struct Walker<'a> {
    modules: &'a Modules,
    memory: Memory,
    unwinder: FrameUnwinder,
    cache: FrameCache,
    tried: HashSet<usize>,
    /// Unwind tables of the modules that were added, to be inspected before they are evaluated.
    tables: HashMap<usize, Tables>,
}

impl std::fmt::Debug for Walker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walker")
            .field("tried", &self.tried)
            .finish_non_exhaustive()
    }
}

/// What one pass gave.
struct Pass {
    addresses: Vec<u64>,
    ended: bool,
    /// It asked for bytes above those that it was given.
    short: bool,
    highest: u64,
}

impl<'a> Walker<'a> {
    /// For the process with these modules and this memory.
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

    /// The same without opening a file, for a thread that stands while we look.
    ///
    /// # Errors
    /// The index of a module on the stack that was not read yet: [`Walker::learn`] it, and walk
    /// again.
    pub fn walk_known(&mut self, place: StackPosition) -> Result<Walk, usize> {
        // A mapping that is newer than the list is read as far as it goes.
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
            // Where the registers are not known, an answer that is the same for two of their values
            // does not depend on them.
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
        // Names are read when first asked for, which may be while a thread stands.
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
            // The next step evaluates what the tables say of the last address.
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
        // As framehop has them; of the global offset table neither tells.
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
        // framehop takes `base_svma` as lying at the base address, so the base is the bias, not the
        // first mapping.
        self.unwinder.add_module(FramehopModule::new(
            crate::show(&module.path),
            module.base..end,
            loaded.bias,
            sections,
        ));
    }

    /// The function that the call instruction before a return address goes to: `address` is the
    /// last byte of that instruction, as [`Frame::address`] has it. Calls through a procedure
    /// linkage table or a global offset table are followed; others, and jumps through registers,
    /// are not known.
    pub fn called(&self, address: u64) -> Option<u64> {
        let target = arch::called(&self.memory, address.wrapping_add(1))?;
        Some(arch::through_linkage_table(&self.memory, target).unwrap_or(target))
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

    /// The unwind tables end a stack in `_start` of the program and in the C library's clone; a
    /// null frame pointer in code without tables ends it, too, which proves nothing.
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

/// Whether the tables of the module that an address lies in may be evaluated for it. Those of a
/// module that was not added are not: there the unwinder goes by frame pointers.
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

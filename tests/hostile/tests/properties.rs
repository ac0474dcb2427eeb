//! The functions of `midair-hostile` on arbitrary bytes and on valid inputs that were changed, with
//! a watch over how much memory they allocate.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which are no test functions themselves"
)]

use midair_hostile as hostile;
use midair_procinfo::elf::ElfFile;
use midair_procinfo::stack::MOST_FRAMES;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The largest allocation so far.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

struct Watched;

// SAFETY: every method passes its arguments unchanged to the system's allocator, which keeps the
// contract. Noting the size allocates nothing.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller's promises about `layout` are those that the system's allocator asks
        // for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that `at` is a block of this allocator with this layout, and
        // all blocks come from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Relaxed);
        // SAFETY: the caller promises that `at` is a block of this allocator with this layout, and
        // all blocks come from the system's allocator.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static WATCHED: Watched = Watched;

/// The largest allocation that is allowed. No input here is as large, so a larger one would come
/// from a size that the input claims.
const MOST: usize = 64 << 20;
/// How long one case may take. It takes milliseconds unless a loop does not end.
const LONGEST: Duration = Duration::from_secs(60);

/// Changes to valid bytes: the places, and the new bytes there.
fn changes() -> impl Strategy<Value = Vec<(Index, u8)>> {
    prop::collection::vec((any::<Index>(), interesting()), 0..12)
}

/// Bytes that often break parsers are more frequent here than by chance.
fn interesting() -> impl Strategy<Value = u8> {
    prop_oneof![
        any::<u8>(),
        Just(0),
        Just(0xff),
        Just(0x7f),
        Just(0x80),
        Just(b'\n'),
        Just(b' '),
        Just(b')')
    ]
}

fn changed(real: &[u8], changes: &[(Index, u8)], cut: Option<Index>) -> Vec<u8> {
    let mut bytes = real.to_vec();
    if !bytes.is_empty() {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
    }
    bytes
}

/// Checks arbitrary bytes, and each of the valid inputs with changes.
fn holds(cases: u32, real: &[Vec<u8>], check: fn(&[u8])) {
    for bytes in real {
        assert!(!bytes.is_empty(), "a real input is empty");
        watched(bytes, check);
    }
    let arbitrary = prop::collection::vec(any::<u8>(), 0..2048);
    let input = (
        arbitrary,
        any::<Index>(),
        changes(),
        prop::option::weighted(0.3, any::<Index>()),
        any::<bool>(),
    );
    each(cases, &input, |(bytes, which, changes, cut, mutate)| {
        if mutate && !real.is_empty() {
            watched(
                &changed(&real[which.index(real.len())], &changes, cut),
                check,
            );
        } else {
            watched(&bytes, check);
        }
    });
}

fn watched(bytes: &[u8], check: fn(&[u8])) {
    let began = Instant::now();
    check(bytes);
    assert!(began.elapsed() < LONGEST, "{:?}", began.elapsed());
    let largest = LARGEST.load(Relaxed);
    assert!(largest < MOST, "{largest} bytes at once");
}

/// Runs the same cases each time, so that a failure is a real finding and not the bad luck of one
/// run.
fn each<S: Strategy>(cases: u32, input: &S, check: impl Fn(S::Value)) {
    let mut runner = TestRunner::new_with_rng(
        Config {
            cases,
            failure_persistence: None,
            ..Config::default()
        },
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let result = runner.run(input, |value| {
        check(value);
        Ok(())
    });
    result.unwrap();
}

/// Programs with libraries, at any address, also at the end of the address space. Some have a list
/// that leads back.
fn programs() -> impl Strategy<Value = hostile::Program> {
    let end = prop_oneof![Just(0), Just(0x5555_5556_0000), Just(0x42_0000)];
    let biases = prop::collection::vec(any::<u64>(), 0..40);
    let back = prop::option::weighted(0.3, any::<Index>());
    (end, biases, back).prop_map(|(end, biases, back)| hostile::Program {
        end,
        back: back.map(|back| back.index(biases.len().max(1))),
        biases,
    })
}

fn of_us(file: &str) -> Vec<u8> {
    std::fs::read(format!("/proc/self/{file}")).unwrap()
}

/// Returns a small library with code, symbols, versions and unwind tables. It is built once.
fn library() -> &'static [u8] {
    static LIBRARY: OnceLock<Vec<u8>> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let source = "int hsa_init(int n) { volatile int a[n]; a[0] = n; return a[0]; }\nint other(int n) { return hsa_init(n) + 1; }\n";
        std::fs::write(at("l.c"), source).unwrap();
        std::fs::write(at("l.map"), "V_1 { global: hsa_init; };\nV_2 { global: other; } V_1;\n").unwrap();
        let built = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wl,--build-id", "-nostdlib", "-o"])
            .arg(at("l.so"))
            .arg(at("l.c"))
            .arg(format!("-Wl,--version-script={}", at("l.map").display()))
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        std::fs::read(at("l.so")).unwrap()
    })
}

#[test]
fn maps() {
    let odd = b"1000-2000 r-xp 0 8:1 5 /a b (deleted)\n0-1 ---s ffffffffffffffff ffffffff:0 18446744073709551615 \xff\n";
    holds(3000, &[of_us("maps"), odd.to_vec()], hostile::maps);
}

#[test]
fn auxv() {
    holds(400, &[of_us("auxv")], |bytes| drop(hostile::auxv(bytes)));
    // In a valid program the list is what was put there, and a list that leads back is refused.
    each(200, &programs(), |program| {
        let found = hostile::auxv(&program.image());
        let ends = program.back.is_none() || program.biases.is_empty();
        assert_eq!(found, ends.then_some(program.biases));
    });
    let broken = (
        programs(),
        changes(),
        prop::option::weighted(0.1, any::<Index>()),
    );
    each(2000, &broken, |(program, changes, cut)| {
        watched(&changed(&program.image(), &changes, cut), |bytes| {
            drop(hostile::auxv(bytes))
        });
    });
}

/// The input that other tests break is read correctly while it is whole.
#[test]
fn a_list_of_libraries() {
    let mut program = hostile::Program::default();
    let found = hostile::auxv(&program.image());
    assert_eq!(found.as_ref(), Some(&program.biases));
    program.back = Some(1);
    assert_eq!(hostile::auxv(&program.image()), None);
}

#[test]
fn proc_files() {
    let real = ["stat", "status", "syscall", "limits"].map(of_us);
    holds(3000, &real, hostile::proc_files);
}

#[test]
fn environment() {
    let mut settings = midair_settings::Settings::new();
    for (name, value) in [
        ("ROCPROF_KERNEL_TRACE", "1"),
        ("ROCPROF_OUTPUT_PATH", ""),
        ("ROCP_X", "a=b"),
    ] {
        settings.set(name, value);
    }
    holds(3000, &[settings.encode().unwrap()], hostile::environment);
}

#[test]
fn seccomp() {
    // ld [0]; jeq #60, 0, 1; ret 0x7fff0000; ret 0x80000000
    let real = [
        0x20_u64,
        60 << 32 | 1 << 24 | 0x15,
        0x7fff_0000 << 32 | 6,
        0x8000_0000 << 32 | 6,
    ];
    let real: Vec<u8> = real.iter().flat_map(|one| one.to_le_bytes()).collect();
    holds(3000, &[real], hostile::seccomp);
}

#[test]
fn boot_block() {
    let mut block = midair_record::boot::MAGIC.to_le_bytes().to_vec();
    block.extend(midair_record::VERSION.to_le_bytes());
    block.resize(size_of::<midair_record::boot::BootBlock>(), 1);
    holds(2000, &[block], hostile::boot_block);
}

#[test]
fn records_and_spools() {
    use midair_record::event::{Api, encode};
    // SAFETY: an Api consists of integers, for which all bits zero is a valid value.
    let api: Api = unsafe { std::mem::zeroed() };
    let run = encode(&api, &[1; 24]).repeat(5);
    holds(3000, std::slice::from_ref(&run), hostile::records);
    // A chunk in use starts with its counters.
    let chunk = [&1_u64.to_le_bytes()[..], &[0xff; 56], &run].concat();
    holds(300, &[chunk, run], hostile::spool);
    holds(2000, &[vec![1; 64]], hostile::offer);
    holds(
        3000,
        &[
            hostile::a_connect_request(),
            hostile::a_proof(),
            hostile::an_answer(),
        ],
        hostile::connect_request,
    );
}

#[test]
fn dispatch_logs() {
    // The write indices, then the start and the end of one packet.
    let record = |what: u8, ticks: u8| [[ticks, 0, 0, 0], [0; 4], [what, 0, 0, 0], [9; 4], [8; 4]];
    let look = |written: u8, records: &[[u8; 4]]| {
        let mut look = vec![0; 4096];
        look[0] = written;
        look[64..64 + 4 * records.len()].copy_from_slice(&records.concat());
        look
    };
    let all = [record(1, 5), record(2, 9)].concat();
    let real = [vec![0; 64], look(0, &[]), look(1, &all), look(2, &all)].concat();
    holds(2000, &[real], hostile::dispatch_log);
}

#[test]
fn packet_answers() {
    let made = b"output 64\nreads 3\nstart 11 22\nread 33 10 0 44\nplace bytes 1 16\nplace pages 0 0\nslot 2 0 3000\nmade\n";
    let real = [
        made.to_vec(),
        b"missing libgcc_s.so.1: cannot open\n".to_vec(),
        b"outside cannot join its mounts\n".to_vec(),
        b"refused 1001 find the block\n".to_vec(),
    ];
    holds(2000, &real, hostile::packet_answer);
}

/// Memory with a Python interpreter as 3.14 lays it out: one thread that is in three frames.
fn an_interpreter() -> Vec<u8> {
    let mut memory = vec![0; 4096];
    let mut put = |at: usize, words: &[u64]| {
        for (n, word) in words.iter().enumerate() {
            memory[at + 8 * n..at + 8 * n + 8].copy_from_slice(&word.to_le_bytes());
        }
    };
    let mut words = [0; 96];
    (words[0], words[1]) = (u64::from_le_bytes(*b"xdebugpy"), 0x030e_00f0);
    (words[5], words[8], words[9]) = (85 * 8, 8, 16);
    (words[24], words[26], words[28]) = (0, 8, 16);
    (words[32], words[33], words[34], words[36]) = (0, 8, 16, 24);
    (words[40], words[42], words[43], words[44], words[48]) = (0, 8, 16, 24, 32);
    (words[75], words[76]) = (16, 24);
    (words[78], words[79], words[80]) = (16, 8, 24);
    words[85] = 0x400;
    put(0, &words);
    put(0x400, &[0, 0, 0x500]);
    put(0x500, &[0, 0x600, 77]);
    put(0x600, &[0x680, 0x800, 0x824, 0]);
    put(0x680, &[0x700, 0x800, 0x820, 0]);
    put(0x700, &[0, 0x800, 0x820, 0]);
    put(0x800, &[0x900, 0x980, 0xa00, 10, 0]);
    let ascii = 1 << 2 | 1 << 5 | 1 << 6;
    put(0x900, &[0, 8, ascii, u64::from_le_bytes(*b"train.py")]);
    put(0x980, &[0, 4, ascii, u64::from_le_bytes(*b"step\0\0\0\0")]);
    put(0xa00, &[0, 0, 4, 0x0000_04e9_00e9]);
    memory
}

/// Memory with a queue whose kernel runs, and with packets that wait for it.
fn a_queue() -> Vec<u8> {
    let mut memory = vec![0; 8192];
    let mut put = |at: usize, words: &[u64]| {
        for (n, word) in words.iter().enumerate() {
            memory[at + 8 * n..at + 8 * n + 8].copy_from_slice(&word.to_le_bytes());
        }
    };
    let mut queue = [0; 18];
    (queue[0], queue[1], queue[2], queue[3], queue[4]) = (1 << 32, 0x1000, 0x800, 8, 5);
    (queue[7], queue[16], queue[17]) = (4, 1, 128);
    put(0x100, &queue);
    put(0x800, &[u64::MAX, 0x40, 0, 0, 0, 0, 0x100, 0]);
    put(0x900, &[1, 1]);
    let sizes = 64 << 32 | 1 << 48;
    let dispatch = |header: u64, signal: u64| {
        let first = header | 1 << 16 | sizes;
        [first, 64 << 32 | 1, 1 | 1 << 32, 0, 0x740, 0, 0, signal]
    };
    // The first has started, so its header is gone.
    put(0x1000, &dispatch(1, 0x900));
    put(0x1040, &[3 | 1 << 8, 0x900, 0x900, 0, 0, 0, 0, 0]);
    put(0x1080, &dispatch(2 | 1 << 8, 0x940));
    memory
}

/// Memory with a code object of two kernels, and with the list that has it.
fn a_code_object() -> Vec<u8> {
    let mut memory = vec![0; 8192];
    let mut put = |at: usize, bytes: &[u8]| memory[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01");
    put(8, &0x500_u64.to_le_bytes());
    put(18, &[224]);
    put(0x28, &0x100_u64.to_le_bytes());
    put(0x3c, &[3]);
    put(0x140 + 4, &11_u32.to_le_bytes());
    put(0x140 + 0x18, &0x200_u64.to_le_bytes());
    put(0x140 + 0x20, &48_u64.to_le_bytes());
    put(0x140 + 0x28, &2_u32.to_le_bytes());
    put(0x180 + 0x18, &0x300_u64.to_le_bytes());
    put(0x218, &6_u32.to_le_bytes());
    put(0x220, &0x1040_u64.to_le_bytes());
    put(0x300, b"\0vadd\0scale.kd\0");
    for (at, next) in [(0x500, 0x540_u64), (0x540, 0)] {
        put(at + 8, &0x600_u64.to_le_bytes());
        put(at + 24, &next.to_le_bytes());
    }
    put(0x600, b"memory://1#offset=0&size=8192\0");
    memory
}

#[test]
fn memory_that_why_looks_at() {
    let real = [an_interpreter(), a_queue(), a_code_object()];
    // The valid ones are found, so that changed ones get as far.
    let found = real.each_ref().map(|bytes| midair_why::image::look(bytes));
    let frames: Vec<_> = found[0]
        .frames
        .iter()
        .map(|it| (it.function.as_str(), it.line))
        .collect();
    assert_eq!(
        frames,
        [("step", Some(12)), ("step", Some(10)), ("step", Some(10))]
    );
    assert_eq!(
        (found[1].queues.len(), found[1].queues[0].running.len()),
        (1, 1)
    );
    assert_eq!(found[2].name.as_deref(), Some(&b"scale"[..]));
    assert!(found[2].objects > 50);
    holds(400, &real, hostile::why);
}

/// Runs of valid records, with changes, are written to files.
#[test]
fn records_become_files() {
    let recordings = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../crates/formats/output/tests/recordings");
    let real = ["hip.bin", "odd.bin", "cuda_odd.bin"]
        .map(|name| std::fs::read(recordings.join(name)).unwrap());
    let real = real.map(|bytes| bytes[..bytes.len().min(8 << 10)].to_vec());
    holds(40, &real, hostile::results);
}

#[test]
fn code_objects() {
    // The kernels of the lab's HIP program (its bundle has them there).
    let program =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/src/vadd.gfx942");
    let object = std::fs::read(program).unwrap()[20_480..27_960].to_vec();
    assert_eq!(&object[..4], b"\x7fELF");
    holds(600, &[object], hostile::code_object);
}

#[test]
fn elf_files() {
    holds(600, &[library().to_vec()], hostile::elf);
}

#[test]
fn unwind_tables() {
    // The unchanged library is unwound: its table says that the return address is the word at the
    // stack pointer. That word is 0, because the file ends in zeros and so does the stack.
    let walks = hostile::unwind(library());
    assert_eq!(walks[0].frames[0].names, ["hsa_init"]);
    assert_eq!(walks[0].bytes, [0; 8], "{walks:?}");
    holds(200, &[library().to_vec()], |bytes| {
        drop(hostile::unwind(bytes))
    });
}

/// What a file says about its sizes is not trusted. This file consists of holes, of any length.
#[test]
fn a_file_with_holes() {
    let mut bytes = library().to_vec();
    let file = tempfile::tempfile().unwrap();
    // The file itself says where its section table is (e_shoff). This changes the sizes of all
    // sections (sh_size).
    let sections = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    for section in bytes[sections..].chunks_exact_mut(64).skip(1) {
        section[32..40].copy_from_slice(&(1_u64 << 39).to_le_bytes());
    }
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    file.set_len(1 << 40).unwrap();
    let elf = midair_procinfo::elf::ElfFile::open(file).unwrap();
    assert!(elf.symbols().is_err());
    assert!(elf.exported(["hsa_init"]).is_err());
    assert!(elf.sections([b".text"]).is_err());
    assert!(LARGEST.load(Relaxed) < MOST);
}

/// An expression in the unwind tables jumps to itself. The unwinder alone would never return.
#[test]
fn a_jump_backwards_in_an_unwind_table() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // DW_CFA_def_cfa_expression with 3 bytes; DW_OP_skip -3.
    let source = "asm(\".text\\n.globl spin\\n.type spin,@function\\nspin:\\n.cfi_startproc\\n.cfi_escape 0x0f,0x03,0x2f,0xfd,0xff\\n\
         nop\\nnop\\nnop\\nnop\\nnop\\nnop\\nnop\\nret\\n.cfi_endproc\\n.size spin,.-spin\\n\");\n";
    std::fs::write(at("s.c"), source).unwrap();
    for flags in [["-Wl,--eh-frame-hdr"], ["-Wl,--no-eh-frame-hdr"]] {
        let built = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-nostdlib", "-o"])
            .arg(at("s.so"))
            .arg(at("s.c"))
            .args(flags)
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        let walks = hostile::unwind(&std::fs::read(at("s.so")).unwrap());
        // The function was found by its name, and the step out of it was not made.
        let first = &walks[0];
        assert_eq!((first.frames.len(), first.rooted), (1, false), "{walks:?}");
        assert_eq!(first.frames[0].names, ["spin"]);
    }
}

/// A header of unwind tables says that they start behind the entry that it points to. gimli 0.33
/// subtracts one from the other, which panics in a build with overflow checks.
#[test]
fn an_unwind_entry_before_its_table() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let source = "asm(\".text\\n.globl hsa_init\\n.type hsa_init,@function\\nhsa_init:\\n.cfi_startproc\\n\
         nop\\nnop\\nnop\\nnop\\nnop\\nnop\\nnop\\nret\\n.cfi_endproc\\n.size hsa_init,.-hsa_init\\n\");\n";
    std::fs::write(at("s.c"), source).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-nostdlib", "-Wl,--eh-frame-hdr", "-o"])
        .arg(at("s.so"))
        .arg(at("s.c"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let mut bytes = std::fs::read(at("s.so")).unwrap();
    // Version 1, and three encodings: of the table's address, of the count and of the entries.
    let found = bytes.windows(4).position(|four| four == [1, 0x1b, 3, 0x3b]);
    let header = found.expect("a header");
    // With the unchanged header, the step out of the function is made and the return address is
    // read.
    assert_eq!(hostile::unwind(&bytes)[0].bytes.len(), 8);
    bytes[header + 4..header + 8].copy_from_slice(&i32::MAX.to_le_bytes());
    let walks = hostile::unwind(&bytes);
    assert_eq!(walks[0].frames.len(), 1, "{walks:?}");
    assert!(walks[0].bytes.is_empty() && !walks[0].rooted, "{walks:?}");
}

/// A header of unwind tables says that it has so many rows that their size has no product. gimli
/// 0.33 multiplies without a check, which panics in a build with overflow checks.
#[test]
fn unwind_tables_with_more_rows_than_bytes() {
    let mut bytes = library_with("");
    let found = bytes.windows(4).position(|four| four == [1, 0x1b, 3, 0x3b]);
    let header = found.expect("a header");
    // With the unchanged header, the return address is read.
    assert_eq!(hostile::unwind(&bytes)[0].bytes.len(), 8);
    // DW_EH_PE_udata8: the number of rows has eight bytes.
    bytes[header + 2] = 4;
    for rows in [u64::MAX, u64::MAX / 8, 1 << 32] {
        bytes[header + 8..header + 16].copy_from_slice(&rows.to_le_bytes());
        let walks = hostile::unwind(&bytes);
        assert_eq!(walks[0].frames.len(), 1, "{walks:?}");
        assert!(walks[0].bytes.is_empty() && !walks[0].rooted, "{walks:?}");
    }
}

/// Returns a library whose function `hsa_init` has these call frame instructions.
fn library_with(instructions: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let source = format!(
        "asm(\".text\\n.globl hsa_init\\n.type hsa_init,@function\\nhsa_init:\\n.cfi_startproc\\n{instructions}\\n\
         nop\\nnop\\nnop\\nnop\\nnop\\nnop\\nnop\\nret\\n.cfi_endproc\\n.size hsa_init,.-hsa_init\\n\");\n"
    );
    std::fs::write(at("s.c"), source).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-nostdlib", "-Wl,--eh-frame-hdr", "-o"])
        .arg(at("s.so"))
        .arg(at("s.c"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    std::fs::read(at("s.so")).unwrap()
}

/// A frame lies at the start of all addresses, and its return address before it. framehop 0.16
/// subtracts without a check, which must not panic in any of our builds.
#[test]
fn an_unwind_entry_whose_frame_lies_at_the_lowest_address() {
    // DW_CFA_def_cfa rbp, 0, where rbp is not known and taken for 0; the return address at -16.
    let bytes = library_with(".cfi_escape 0x0c,6,0,0x90,2");
    let walks = hostile::unwind(&bytes);
    assert_eq!(walks[0].frames.len(), 1, "{walks:?}");
    assert!(walks[0].bytes.is_empty() && !walks[0].rooted, "{walks:?}");
}

/// A frame and the place of a register in it are so far apart that they have no sum. framehop 0.16
/// adds them without a check, so it is not asked.
#[test]
fn an_unwind_entry_whose_offsets_have_no_sum() {
    // DW_CFA_offset_extended_sf rbp, -(2^60 - 1), in units of -8 bytes.
    let bytes = library_with(".cfi_escape 0x11,6,0x81,0x80,0x80,0x80,0x80,0x80,0x80,0x80,0x70");
    let walks = hostile::unwind(&bytes);
    assert_eq!(walks[0].frames.len(), 1, "{walks:?}");
    assert!(walks[0].bytes.is_empty() && !walks[0].rooted, "{walks:?}");
    // With a distance that a stack may have, the step is made.
    let walks = hostile::unwind(&library_with(".cfi_escape 0x11,6,2"));
    assert_eq!(walks[0].bytes.len(), 8, "{walks:?}");
}

/// Two functions whose frames take no room on the stack, each of which returns into the other.
/// Without a limit on the number of frames the walk would never end.
#[test]
fn unwind_entries_that_lead_round_in_a_circle() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // The frame starts at rsp, and the return address lies 8 or 16 bytes above it.
    let function = |name: &str, place: u32| {
        format!(
            ".globl {name}\\n.type {name},@function\\n{name}:\\n.cfi_startproc\\n.cfi_def_cfa rsp,0\\n.cfi_offset rip,{place}\\n\
             nop\\nnop\\nnop\\nnop\\nnop\\nnop\\nnop\\nret\\n.cfi_endproc\\n.size {name},.-{name}\\n"
        )
    };
    let (there, back) = (function("hsa_init", 8), function("hsa_back", 16));
    std::fs::write(at("s.c"), format!("asm(\".text\\n{there}{back}\");\n")).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-nostdlib", "-Wl,--eh-frame-hdr", "-o"])
        .arg(at("s.so"))
        .arg(at("s.c"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let mut bytes = std::fs::read(at("s.so")).unwrap();
    let elf = ElfFile::open(std::fs::File::open(at("s.so")).unwrap()).unwrap();
    let [there, back] = elf.exported(["hsa_init", "hsa_back"]).unwrap();
    let code = elf.segments.iter().find(|segment| segment.execute).unwrap();
    // The last bytes are the stack, from its end; an odd word points into the code.
    let into = |function: Option<u64>| {
        let offset = function.unwrap() + 4 - (code.address & !0xfff);
        (offset << 8 | 1).to_le_bytes()
    };
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(into(there));
    bytes.extend(into(back));
    bytes.extend([0; 8]);
    let walks = hostile::unwind(&bytes);
    let first = &walks[0];
    assert_eq!((first.frames.len(), first.rooted), (MOST_FRAMES, false));
}

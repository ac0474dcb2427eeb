//! One boot of a guest: qemu, its console, its deadline.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use midair_dev_kit::run::{At, Failure, Outcome, failed, output, root, target_directory};

use super::kernel::{AMD64, Arch, Ready};
use super::rows::Row;
use super::{emptied, shell};

/// What the command line asks for besides rows.
#[derive(Debug, Default)]
pub struct Options {
    /// Whether to emulate where the processor itself could be used.
    pub emulate: bool,
    /// Whether to take the programs of the last build as they are.
    pub built: bool,
    /// How long further tests are started, instead of the time in the row.
    pub minutes: Option<u64>,
    /// A regular expression for the only tests to run, as "PROGRAM TEST"; of the torture matrix, its
    /// rows or parts of the cells' names ("2|3"). The table is then left as it is.
    pub only: Option<String>,
    /// How many processors a guest has, instead of two.
    pub processors: Option<u32>,
}

impl Options {
    fn processors(&self) -> u32 {
        self.processors.unwrap_or(2)
    }
}

/// The processor that the guest runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// This machine's processor.
    Kvm,
    /// An emulated processor.
    Tcg,
}

impl Accelerator {
    /// Returns the best one for a machine type. It is not enough that `/dev/kvm` exists. Under some
    /// hypervisors it exists and emulates what Debian's kernels do, more slowly than qemu. Seen with
    /// the module `kvm_pvm` in Firecracker's guests, which have neither VMX nor SVM: it runs only
    /// kernels that are made for it (PVM). Debian's 6.1 printed nothing within 60 s (TCG: up after
    /// 3 s), and 7.3 stopped at an instruction that it does not emulate (SHLX).
    pub fn of(arch: Arch, emulate: bool) -> Accelerator {
        let own = arch.qemu == std::env::consts::ARCH;
        let kvm = || OpenOptions::new().read(true).write(true).open("/dev/kvm");
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let mut words = processor.split_ascii_whitespace();
        let able = arch != AMD64 || words.any(|word| word == "vmx" || word == "svm");
        match own && able && !emulate && kvm().is_ok() {
            true => Accelerator::Kvm,
            false => Accelerator::Tcg,
        }
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "KVM",
            Accelerator::Tcg => "TCG",
        }
    }

    /// Returns how many times longer things may take than on a real processor.
    pub fn factor(self) -> u64 {
        match self {
            Accelerator::Kvm => 1,
            Accelerator::Tcg => 10,
        }
    }
}

/// A boot that has come to its end.
pub struct Ran {
    /// The directory with what the guest handed over.
    pub results: PathBuf,
    /// How long the boot took.
    pub took: Duration,
    /// The name of the processor that it ran on.
    pub processor: String,
    /// The commit of the programs.
    pub commit: String,
}

/// What a guest is started with.
pub struct Guest<'a> {
    pub arch: Arch,
    pub kernel_words: &'a str,
    pub accelerator: Accelerator,
    pub kernel: &'a Path,
    pub initramfs: &'a Path,
    pub root: &'a Path,
    pub programs: &'a Path,
    /// The disk to which the guest writes its results.
    pub results: &'a Path,
}

/// The size of the disk for results, which is sparse.
pub const RESULTS: u64 = 1 << 30;

/// Returns qemu's name and its arguments.
pub fn words(guest: &Guest, options: &Options) -> Vec<OsString> {
    let (arch, accelerator) = (guest.arch, guest.accelerator);
    let mut words: Vec<OsString> = vec![format!("qemu-system-{}", arch.qemu).into()];
    let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
    add(match (arch == AMD64, accelerator) {
        (true, Accelerator::Kvm) => &["-M", "q35", "-accel", "kvm", "-cpu", "host"][..],
        (true, Accelerator::Tcg) => &["-M", "q35", "-accel", "tcg", "-cpu", "max"],
        (false, Accelerator::Kvm) => &["-M", "virt", "-accel", "kvm", "-cpu", "host"],
        // The architecture's own way to sign pointers takes half of an emulated processor's time.
        (false, Accelerator::Tcg) => {
            &["-M", "virt", "-accel", "tcg", "-cpu", "max,pauth-impdef=on"]
        }
    });
    let append = format!(
        "console={} panic=-1 loglevel=4 random.trust_cpu=on {}",
        arch.console, guest.kernel_words
    );
    let processors = options.processors().to_string();
    add(&["-m", "4096", "-smp", &processors]);
    add(&["-nodefaults", "-no-user-config", "-display", "none"]);
    add(&["-no-reboot", "-serial", "stdio"]);
    add(&["-device", "virtio-rng-pci", "-append", append.trim_end()]);
    words.extend(["-kernel".into(), guest.kernel.into()]);
    words.extend(["-initrd".into(), guest.initramfs.into()]);
    let disks = [
        ("root", guest.root, "on"),
        ("programs", guest.programs, "on"),
        ("results", guest.results, "off"),
    ];
    for (name, path, snapshot) in disks {
        let drive = format!(
            "if=none,id={name},format=raw,snapshot={snapshot},cache=unsafe,file={}",
            path.display()
        );
        let device = format!("virtio-blk-pci,drive={name},serial={name}");
        words.extend(["-drive".into(), drive.into()]);
        words.extend(["-device".into(), device.into()]);
    }
    words
}

/// Returns how long a guest may take.
pub fn limit(row: &Row, accelerator: Accelerator) -> Duration {
    let times = match accelerator {
        Accelerator::Tcg => 6,
        Accelerator::Kvm => 1,
    };
    Duration::from_secs(row.minutes * 60 * times)
}

/// Boots the guest and waits for its end. The console's output is kept in `target/vm/ROW.console`.
pub fn run(
    row: &Row,
    kernel: &Ready,
    initramfs: &Path,
    disks: [&PathBuf; 2],
    accelerator: Accelerator,
    options: &Options,
) -> Outcome<Ran> {
    let work = target_directory().join("vm");
    let results = work.join(format!("{}.img", row.name));
    let _absent = fs::remove_file(&results);
    let file = File::create(&results).at("making", &results)?;
    file.set_len(RESULTS).at("making", &results)?;
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).args(words(
        &Guest {
            arch: row.kernel.arch,
            kernel_words: row.kernel_words,
            accelerator,
            kernel: &kernel.image,
            initramfs,
            root: disks[0],
            programs: disks[1],
            results: &results,
        },
        options,
    ));
    let began = Instant::now();
    let log = work.join(format!("{}.console", row.name));
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure(format!("qemu: {error}")))?;
    watch(Running(child), &log, limit(row, accelerator))?;
    let took = began.elapsed();
    let unpacked = emptied(work.join(format!("{}.results", row.name)))?;
    shell(
        r#"tar --extract --file="$1" --directory="$2"; rm "$1""#,
        &[results.as_os_str(), unpacked.as_os_str()],
    )?;
    Ok(Ran {
        results: unpacked,
        took,
        processor: accelerator.name().to_owned(),
        commit: commit()?,
    })
}

/// Returns the commit of what is here.
pub fn commit() -> Outcome<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty"]);
    let said = output(git.current_dir(root()))?;
    Ok(String::from_utf8_lossy(&said).trim().to_owned())
}

/// A guest, which is ended when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The guest may have ended by itself.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Keeps the console's output, shows our own lines, and waits for the end.
fn watch(mut guest: Running, log: &Path, limit: Duration) -> Outcome<()> {
    let Some(console) = guest.0.stdout.take() else {
        return failed("qemu has no console");
    };
    let mut file = File::create(log).at("writing", log)?;
    let (lines, received) = channel();
    std::thread::spawn(move || {
        let mut console = BufReader::new(console);
        let mut line = Vec::new();
        while console
            .read_until(b'\n', &mut line)
            .is_ok_and(|len| len > 0)
        {
            if lines.send(std::mem::take(&mut line)).is_err() {
                break;
            }
        }
    });
    let began = Instant::now();
    let deadline = began + limit;
    let mut done = false;
    while let Some(line) = next(&received, deadline)? {
        file.write_all(&line).at("writing", log)?;
        let text = String::from_utf8_lossy(&line);
        if let Some((_, said)) = text.split_once("@@ ") {
            println!("   {:4} s  {}", began.elapsed().as_secs(), said.trim_end());
            // The kernel may write on the same line.
            done |= said.starts_with("done");
        }
    }
    match done {
        true => Ok(()),
        false => failed(format!(
            "the guest did not come to its end: {}",
            log.display()
        )),
    }
}

/// Returns the console's next line, or `None` when the console is closed.
fn next(received: &Receiver<Vec<u8>>, deadline: Instant) -> Outcome<Option<Vec<u8>>> {
    let left = deadline.saturating_duration_since(Instant::now());
    match received.recv_timeout(left) {
        Ok(line) => Ok(Some(line)),
        Err(RecvTimeoutError::Disconnected) => Ok(None),
        Err(RecvTimeoutError::Timeout) => failed("the guest took too long"),
    }
}

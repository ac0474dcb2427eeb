//! Our thread in the target: takes a session from whoever attaches, runs it, parks.
//!
//! It was started by the engine's boot code with all signals blocked. It owns no descriptor between sessions: an attacher finds it
//! by its name and the futex word that it waits on (see [`midair_record::boot`]).

use crate::clock::now;
use crate::collect;
use crate::current;
use crate::descriptor_path;
use crate::only;
use crate::registration;
use midair_record::boot::{BootBlock, mailbox, step};
use midair_record::knock::{self, Answer};
use midair_record::offer::{MAX_TOOLS, Offer, Reply};
use midair_record::spool::{Area, command, outcome, state};
use midair_settings::{Settings, TOOLS_BY_NAME};
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

/// Longest wait between two looks at a running session.
pub(crate) const IDLE_TICK: Duration = Duration::from_millis(5);
/// How long a refusal stays to be seen.
const REFUSAL_SHOWN: Duration = Duration::from_millis(500);
/// Wait while work is under way.
pub(crate) const BUSY_TICK: Duration = Duration::from_millis(1);

/// The agent's own state, kept between sessions.
#[derive(Debug, Default)]
struct Agent {
    /// Tools loaded so far, by the identity that the attacher gave them.
    tools: HashMap<u64, Tool>,
}

/// A loaded tool.
#[derive(Debug, Clone, Copy)]
struct Tool {
    handle: *mut c_void,
}

/// Entry point, called by the boot code on our thread. Returns only when the thread shall end.
///
/// # Safety
/// `boot` must be the live boot block of the calling thread, mapped for ever.
pub unsafe fn enter(boot: *mut BootBlock) {
    let _ = std::panic::catch_unwind(|| {
        // A panic is caught at this edge; nothing may be printed in a process that is not ours.
        std::panic::set_hook(Box::new(|_| {}));
        // SAFETY: the caller's promise.
        unsafe { live(boot) };
    });
}

unsafe fn live(boot: *mut BootBlock) {
    crate::forked::begin_anew();
    if !only::claim() {
        // The boot code hangs up and ends this thread.
        // SAFETY: as below; the attacher reads these fields once the mailbox says that it failed.
        unsafe {
            (*boot).error = libc::EBUSY;
            (*boot).error_step = step::ENTRY;
            (*boot).mailbox.store(mailbox::FAILED, Release);
        }
        return;
    }
    collect::i_am_the_agent();
    registration::discover::entered_by_engine();
    // SAFETY: the boot block stays mapped; this thread is the only one in the target that writes its plain fields, and the attacher
    // reads and writes them from outside only as the mailbox allows.
    let word = unsafe { &(*boot).mailbox };
    crate::collector::set(current::COLLECTOR);
    let mut agent = Agent::default();
    // Called after the next one: tools are ended when collecting has stopped.
    registration::end_at_exit();
    // SAFETY: `handle_exit` is a function of a library that is never unloaded.
    unsafe { libc::atexit(handle_exit) };
    loop {
        // SAFETY: as above.
        let near = unsafe { std::mem::replace(&mut (*boot).fd_near, -1) };
        if near >= 0 {
            // SAFETY: the boot code or `open` made it, and nobody else closes it.
            let socket = unsafe { OwnedFd::from_raw_fd(near) };
            if let Some(session) = receive(socket) {
                agent.session(session);
            }
        }
        // Until the next session another copy of this library may have one.
        only::release();
        word.store(mailbox::PARKED, Release);
        loop {
            let handed = loop {
                match word.load(Acquire) {
                    mailbox::KICK => break false,
                    mailbox::HANDED => break true,
                    _ => wait_on(word, mailbox::PARKED, None, true),
                }
            };
            let claimed = only::claim();
            if handed && claimed {
                // SAFETY: as above.
                unsafe { (*boot).fd_near = take_handed(boot) };
                word.store(mailbox::TALKING, Release);
                break;
            }
            // SAFETY: as above.
            unsafe { hang_up(boot, handed) };
            if handed {
                word.store(mailbox::PARKED, Release);
                continue;
            }
            if claimed {
                // SAFETY: as above.
                unsafe { open(boot, word) };
                break;
            }
            // SAFETY: as above.
            unsafe {
                (*boot).error = libc::EBUSY;
                (*boot).error_step = step::ENTRY;
            }
            word.store(mailbox::FAILED, Release);
            show_refusal(word);
        }
    }
}

/// The connection that the process's listener handed over, or -1.
///
/// # Safety
/// `boot` is the live boot block of the calling thread.
unsafe fn take_handed(boot: *mut BootBlock) -> RawFd {
    // SAFETY: see `live`.
    let handed = unsafe { (*boot).handed.swap(0, SeqCst) };
    handed.cast_signed().wrapping_sub(1)
}

/// Closes the connection that the process's listener handed over: another copy of this library is at work (`refused`, and the attacher is
/// told), or an attacher that traces came between.
///
/// # Safety
/// As [`take_handed`].
unsafe fn hang_up(boot: *mut BootBlock, refused: bool) {
    // SAFETY: see `live`.
    let near = unsafe { take_handed(boot) };
    if near < 0 {
        return;
    }
    // SAFETY: the listener made it, and who takes it out of the block has it alone.
    let connection = unsafe { OwnedFd::from_raw_fd(near) };
    if refused {
        let mut answer = Answer::new(knock::outcome::FAILED);
        (answer.step, answer.error) = (step::ENTRY, libc::EBUSY);
        let bytes = answer.bytes();
        // SAFETY: so many bytes of a live value.
        unsafe {
            libc::send(
                connection.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
            )
        };
    }
}

/// Whoever woke us looks at the word every few ms. The next one need not wait until the time is over: it may kick as if we were parked.
fn show_refusal(word: &AtomicU32) {
    let end = std::time::Instant::now() + REFUSAL_SHOWN;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        if word.load(Acquire) != mailbox::FAILED {
            return;
        }
        if left.is_zero() {
            let _ = word.compare_exchange(mailbox::FAILED, mailbox::PARKED, SeqCst, SeqCst);
            return;
        }
        wait_on(word, mailbox::FAILED, Some(left), true);
    }
}

/// Makes a socket pair and waits for the attacher to take the far end and speak.
///
/// # Safety
/// As [`take_handed`].
unsafe fn open(boot: *mut BootBlock, word: &AtomicU32) {
    let mut pair = [-1; 2];
    // SAFETY: a valid out pointer.
    if unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
            pair.as_mut_ptr(),
        )
    } != 0
    {
        // SAFETY: see `live`.
        unsafe {
            (*boot).error = *libc::__errno_location();
            (*boot).error_step = step::SOCKET;
        }
        word.store(mailbox::FAILED, Release);
        return;
    }
    let [near, far] = pair;
    // SAFETY: see `live`.
    let patience = unsafe {
        (*boot).fd_near = near;
        (*boot).fd_far = far;
        (*boot).patience_ms
    };
    word.store(mailbox::OPEN, Release);
    let mut poll = libc::pollfd {
        fd: near,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    let spoke = unsafe { libc::poll(&mut poll, 1, patience as c_int) } == 1;
    // SAFETY: our own descriptors; the attacher has a copy of the far one by now, or never takes it.
    unsafe {
        libc::close(far);
        (*boot).fd_far = -1;
        if !spoke {
            libc::close(near);
            (*boot).fd_near = -1;
        }
    }
    word.store(mailbox::TALKING, Release);
}

/// What an attacher sent.
struct Session {
    offer: Offer,
    spool: OwnedFd,
    tools: Vec<OwnedFd>,
    socket: OwnedFd,
}

fn receive(socket: OwnedFd) -> Option<Session> {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // A starved attacher takes long to make its spool; one that dies closes the socket, which ends the wait.
    // SAFETY: one valid pollfd.
    if unsafe { libc::poll(&mut poll, 1, 20_000) } != 1 {
        return None;
    }
    let mut offer = Offer::default();
    let mut control = [0_u64; 32];
    let mut part = libc::iovec {
        iov_base: (&raw mut offer).cast(),
        iov_len: size_of::<Offer>(),
    };
    // SAFETY: msghdr is plain data; zero is a valid value of each field.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the buffers outlive the call; Offer is made of integers.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
    let mut fds = Vec::new();
    // SAFETY: the kernel filled the control buffer; the macros walk it within msg_controllen.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let count =
                    ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for index in 0..count {
                    fds.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    let good = got as usize == size_of::<Offer>()
        && offer.is_ours()
        && fds.len() == 1 + offer.tools as usize;
    if !good {
        return None;
    }
    let mut fds = fds.into_iter();
    let spool = fds.next()?;
    Some(Session {
        offer,
        spool,
        tools: fds.collect(),
        socket,
    })
}

impl Agent {
    fn session(&mut self, session: Session) {
        let len = session.offer.spool_size as usize;
        // SAFETY: a fresh shared mapping of a descriptor that was sent to us, at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                session.spool.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            answer(&session.socket, false);
            return;
        }
        // A forked child must not even see it.
        // SAFETY: our own mapping.
        unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) };
        // SAFETY: mapped above, unmapped below only when nobody refers to it. The attacher sealed its size.
        let Some(area) = (unsafe { Area::new(base.cast(), len) }) else {
            answer(&session.socket, false);
            // SAFETY: our own mapping, not used by anyone.
            unsafe { libc::munmap(base, len) };
            return;
        };
        answer(&session.socket, true);
        // From here on the spool's words are the only connection: no descriptor of ours stays.
        let Session { offer, tools, .. } = session;
        collect::serve(true);
        match self.set_up(area, &offer, tools) {
            Ok(()) => self.run(area),
            Err(why) => {
                current::set_deadline(now());
                let _ = registration::detach();
                current::with(|collection| collection.stop_all(now()));
                area.set_message(&why);
                set_state(area, state::FAILED);
            }
        }
        collect::serve(false);
        if !current::with(|collection| collection.end()) {
            // SAFETY: our own mapping; the collection says that nobody refers to it.
            unsafe { libc::munmap(base, len) };
        }
    }

    fn set_up(&mut self, area: Area, offer: &Offer, tools: Vec<OwnedFd>) -> Result<(), String> {
        let settings =
            Settings::decode(area.settings()).map_err(|error| format!("the settings: {error}"))?;
        let named: Vec<String> = settings
            .list(TOOLS_BY_NAME, ':')
            .into_iter()
            .map(str::to_owned)
            .collect();
        crate::setting::publish(settings);
        current::with(|collection| collection.begin(Some(area)));
        // Tools start their contexts one by one; the collection begins once, with all of them, so that every domain of the trace
        // begins at the same moment.
        current::hold(true);
        let attached = self.attach_tools(offer, tools, &named);
        current::hold(false);
        attached?;
        current::with(|collection| collection.apply())?;
        match current::take_complaint() {
            Some(complaint) => Err(complaint),
            None => Ok(()),
        }
    }

    /// Configures the tools of this session where that was not done before, and attaches them, and no others.
    fn attach_tools(
        &mut self,
        offer: &Offer,
        tools: Vec<OwnedFd>,
        named: &[String],
    ) -> Result<(), String> {
        registration::begin_session();
        for (fd, identity) in tools.into_iter().zip(offer.tool_identity) {
            let tool = self.load(fd, identity)?;
            // SAFETY: a handle from dlopen that is never closed.
            unsafe { registration::load(tool.handle) }
                .map_err(|status| format!("a tool cannot be configured: {status:?}"))?;
        }
        for name in named {
            let handle = registration::library::open_named(name)
                .map_err(|why| format!("the tool {name} cannot be loaded: {why}"))?;
            // SAFETY: as above.
            unsafe { registration::load(handle) }
                .map_err(|status| format!("the tool {name} cannot be configured: {status:?}"))?;
        }
        registration::attach().map_err(|status| format!("a tool refused to attach: {status:?}"))
    }

    fn load(&mut self, fd: OwnedFd, identity: u64) -> Result<Tool, String> {
        if let Some(known) = self.tools.get(&identity) {
            return Ok(*known);
        }
        let fd = descriptor_path::renumber(fd)?;
        let path = std::ffi::CString::new(format!("{}{}", descriptor_path::FOLDER, fd.as_raw_fd()))
            .map_err(|error| error.to_string())?;
        // SAFETY: a NUL-terminated path; the library's initialisers run, as its user asked for.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        drop(fd);
        if handle.is_null() {
            // SAFETY: dlerror gives null or a string that is valid until the next call on this thread.
            let why = unsafe {
                let text = libc::dlerror();
                if text.is_null() {
                    c"unknown".into()
                } else {
                    CStr::from_ptr(text).to_owned()
                }
            };
            return Err(format!(
                "the tool cannot be loaded: {}",
                why.to_string_lossy()
            ));
        }
        let tool = Tool { handle };
        self.tools.insert(identity, tool);
        Ok(tool)
    }

    fn run(&mut self, area: Area) {
        let head = area.head();
        let slots = || current::with(|collection| collection.slots());
        head.slots.store(slots(), Relaxed);
        head.attached_at.store(now(), Relaxed);
        set_state(area, state::ATTACHED);
        let mut tick = head.lease_tick.load(Acquire);
        let mut tick_at = now();
        let lease = u64::from(head.lease_ms) * 1_000_000;
        let reason = loop {
            let busy = current::with(|collection| collection.tick());
            head.slots.store(slots(), Relaxed);
            head.target_tick.fetch_add(1, Release);
            if head.command.load(Acquire) == command::DETACH {
                break 0;
            }
            if collect::RUNTIME_LEAVES.load(SeqCst) != 0 {
                break outcome::RUNTIME_SHUT_DOWN;
            }
            if collect::PROCESS_LEAVES.load(SeqCst) != 0 {
                break outcome::PROCESS_EXIT;
            }
            let lease_tick = head.lease_tick.load(Acquire);
            if lease_tick != tick {
                (tick, tick_at) = (lease_tick, now());
            } else if lease != 0 && now() - tick_at > lease {
                break outcome::LEASE_EXPIRED;
            }
            wait_on(
                &head.command,
                command::RUN,
                Some(if busy { BUSY_TICK } else { IDLE_TICK }),
                false,
            );
        };
        set_state(area, state::DETACHING);
        let deadline = now() + u64::from(head.drain_ms) * 1_000_000;
        current::set_deadline(deadline);
        // All domains end at the same moment; then the tools stop their contexts, with everything delivered.
        current::with(|collection| collection.stop_all(deadline));
        let _ = registration::detach();
        head.detached_at.store(now(), Relaxed);
        head.outcome.store(
            current::with(|collection| collection.outcome) | reason,
            Release,
        );
        set_state(area, state::COMPLETE);
    }
}

extern "C" fn handle_exit() {
    if crate::probe::generation() != 0 {
        collect::PROCESS_LEAVES.store(1, SeqCst);
        collect::wait_for_stop();
    }
}

fn answer(socket: &OwnedFd, accepted: bool) {
    let reply = Reply::new(accepted);
    // SAFETY: a plain struct of integers, sent whole; the attacher may be gone, which is found out by the lease.
    unsafe {
        libc::send(
            socket.as_raw_fd(),
            (&raw const reply).cast(),
            size_of::<Reply>(),
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
}

fn set_state(area: Area, value: u32) {
    area.head().state.store(value, Release);
    // SAFETY: a futex word in a live shared mapping; waking has no effect on memory.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const area.head().state,
            libc::FUTEX_WAKE,
            i32::MAX,
            0,
            0,
            0,
        )
    };
}

/// Waits until `word` is not `expected`, or for `limit`. A spurious return is fine.
pub(crate) fn wait_on(word: &AtomicU32, expected: u32, limit: Option<Duration>, private: bool) {
    let time = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs() as _,
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    let operation = if private {
        libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG
    } else {
        libc::FUTEX_WAIT
    };
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a live futex word and a valid or null timeout.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            std::ptr::from_ref(word),
            operation,
            expected,
            time,
            0,
            0,
        )
    };
}

const _: () = assert!(MAX_TOOLS <= 16);

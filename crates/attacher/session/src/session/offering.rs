//! The offer of a session to the worker thread, and its answer.

use super::tool::Tool;
use super::{Phase, stopped};
use crate::target::Target;
use midair_failure::{Failure, Kind};
use midair_ptrace::fault;
use midair_record::offer::{MAX_TOOLS, Offer, Reply};
use midair_record::spool::Reader;
use nix::sys::socket::{ControlMessage, MsgFlags, recv, sendmsg};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// How long the target may take to answer the offer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Why a session did not start.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The worker thread had stopped waiting for the offer, so nothing was started.
    OfferNotTaken(Failure),
    /// A worker thread has the process, of a copy of our library that the process did not load by
    /// itself: of an attempt before this one, which has not given up yet, or of an
    /// attacher which cannot be seen from here. Nothing was started.
    Claimed(Failure),
    /// The process executed another program before anything was changed in it.
    OtherProgram(Failure),
    /// Anything else. What was started is undone.
    Failed(Failure),
}

impl StartError {
    /// Returns the failure to report.
    pub(crate) fn failure(&self) -> &Failure {
        match self {
            StartError::OfferNotTaken(failure)
            | StartError::Claimed(failure)
            | StartError::OtherProgram(failure)
            | StartError::Failed(failure) => failure,
        }
    }
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> StartError {
        StartError::Failed(failure)
    }
}

/// Sends the spool, the tools and the plan of counters, and waits for the answer.
pub(super) fn offer(
    channel: &OwnedFd,
    target: &Target,
    reader: &Reader,
    tools: &[Tool],
    plan: Option<&(File, u64)>,
) -> Result<(), StartError> {
    let setup = |what: String| Failure::new(Kind::Setup, what);
    let mut identity = [0; MAX_TOOLS];
    for (tool, identity) in tools.iter().zip(&mut identity) {
        *identity = tool.identity;
    }
    let plan_bytes = plan.map_or(0, |(_, bytes)| *bytes);
    let offer = Offer::new(
        reader.size() as u64,
        tools.len() as u32,
        identity,
        plan_bytes,
    );
    let fds: Vec<RawFd> = std::iter::once(reader.fd().as_raw_fd())
        .chain(tools.iter().map(|tool| tool.file.as_raw_fd()))
        .chain(plan.map(|(file, _)| file.as_raw_fd()))
        .collect();
    let parts = [IoSlice::new(offer.bytes())];
    let control = [ControlMessage::ScmRights(&fds)];
    sendmsg::<()>(
        channel.as_raw_fd(),
        &parts,
        &control,
        MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
        None,
    )
    .map_err(|error| {
        let why = crate::explain::offer_not_taken(target.pid(), error.desc());
        StartError::OfferNotTaken(setup(why).hint(crate::attach::OFFER_HINT))
    })?;
    fault::step("offer sent");
    wait_for_answer(channel, target)?;
    let mut answer = [0; 16];
    // A message that does not answer the offer is left in the socket, because the worker thread may
    // use it to report an error of its own.
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    let got = recv(channel.as_raw_fd(), &mut answer, flags).unwrap_or(0);
    fault::step("answer received");
    match answer.get(..got).and_then(Reply::read) {
        Some(true) => Ok(()),
        Some(false) => Err(setup("midair's part in the process cannot map the spool".to_owned())
            .hint("use a smaller spool: its address space limit (RLIMIT_AS) or memory cgroup may be too tight").into()),
        None => {
            let doing = target.doing().map_or_else(String::new, |doing| format!(": {doing}"));
            Err(setup(format!("midair's part in the process did not answer{doing}")).into())
        }
    }
}

/// Waits until the channel is readable or at its end. The end of the process closes its channel.
fn wait_for_answer(channel: &OwnedFd, target: &Target) -> Result<(), Failure> {
    let limit = Instant::now() + ANSWER_LIMIT;
    let readable = nix::poll::PollFlags::POLLIN;
    loop {
        let mut polled = [nix::poll::PollFd::new(channel.as_fd(), readable)];
        match nix::poll::poll(&mut polled, 100_u8) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => {
                let what = format!("cannot wait for midair's part in the process: {error}");
                return Err(Failure::new(Kind::Setup, what));
            }
        }
        if let Some(how) = target.kept() {
            return Err(stopped(Phase::SetUp, how));
        }
        // The caller reports that there was no answer.
        if Instant::now() >= limit || target.ended().is_some() {
            return Ok(());
        }
    }
}

//! Connects the command lines to `midair-session`.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use midair_failure::Failure;
use midair_session::{Collected, Group, GroupCollected, Listing, NoEntry, Pid, Session};

use crate::engine::{
    Attached, Check, Engine, Entry, Event, GroupRequest, Notice, Request, Style, Trace, Written,
};

/// The SONAME of the library that AMD's messages name.
const LIBRARY: &str = "librocprofiler-sdk-rocattach.so.1";

/// The engine that attaches to real processes.
#[derive(Debug, Default)]
pub struct SessionEngine;

impl Engine for SessionEngine {
    #[expect(
        clippy::disallowed_methods,
        reason = "our own library, next to our own program"
    )]
    fn library(&self) -> PathBuf {
        let installed = std::env::current_exe().ok().and_then(|exe| {
            let library = exe.parent()?.parent()?.join("lib").join(LIBRARY);
            library.exists().then_some(library)
        });
        installed.unwrap_or_else(|| PathBuf::from(LIBRARY))
    }

    fn inspect(&self, request: &Request) -> Result<Vec<Check>, Failure> {
        Ok(midair_session::checks(request))
    }

    fn inspect_machine(&self, request: &Request) -> Result<Vec<Check>, Failure> {
        Ok(midair_session::machine_checks(
            request,
            &crate::counters::agents(),
        ))
    }

    fn list(&self, all: bool) -> Listing {
        midair_session::list(all)
    }

    fn name_of(&self, pid: Pid) -> Option<String> {
        let found = midair_session::find::process(pid)?;
        Some(found.name).filter(|name| !name.is_empty())
    }

    fn attach(&self, request: &Request) -> Result<Box<dyn Attached>, Failure> {
        Ok(match request.no_entry {
            true => Box::new(NoEntry::attach(request)?),
            false => Box::new(Session::attach(request)?),
        })
    }

    fn attach_group(&self, request: GroupRequest) -> Result<Box<dyn Attached>, Failure> {
        Ok(Box::new(Group::attach(request)?))
    }
}

impl Attached for Session {
    fn poll(&mut self) -> Result<Event, Failure> {
        Session::poll(self)
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(Session::wake(self))
    }

    fn entry(&self) -> Option<&Entry> {
        Some(Session::entry(self))
    }

    fn detach(self: Box<Self>) -> Result<Box<dyn Trace>, Failure> {
        Ok(Box::new(Session::detach(*self)?))
    }
}

impl Attached for NoEntry {
    fn poll(&mut self) -> Result<Event, Failure> {
        NoEntry::poll(self)
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(NoEntry::wake(self))
    }

    fn heartbeat(&self) -> Duration {
        NoEntry::heartbeat(self)
    }

    fn entry(&self) -> Option<&Entry> {
        Some(NoEntry::entry(self))
    }

    fn detach(self: Box<Self>) -> Result<Box<dyn Trace>, Failure> {
        Ok(Box::new(NoEntry::detach(*self)?))
    }
}

impl Trace for Collected {
    fn detach_failure(&self) -> Option<&Failure> {
        Collected::failure(self)
    }

    fn write(self: Box<Self>, style: Style) -> Result<Written, Failure> {
        Collected::write(*self, style)
    }
}

impl Attached for Group {
    fn poll(&mut self) -> Result<Event, Failure> {
        Group::poll(self)
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(Group::wake(self))
    }

    fn news(&mut self) -> Vec<Notice> {
        Group::news(self)
    }

    fn detach(self: Box<Self>) -> Result<Box<dyn Trace>, Failure> {
        Ok(Box::new(Group::detach(*self)))
    }
}

impl Trace for GroupCollected {
    fn detach_failure(&self) -> Option<&Failure> {
        GroupCollected::failure(self)
    }

    fn write(self: Box<Self>, style: Style) -> Result<Written, Failure> {
        GroupCollected::write(*self, style)
    }
}

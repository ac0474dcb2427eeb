//! What the command lines need from the engine, as traits.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

pub use midair_session::{
    Check, End, Entry, Event, GroupRequest, Notice, NoticeKind, Request, Requested, Screen,
    Selection, Style, Verdict, Written,
};

use midair_failure::{Failure, Kind};
use midair_session::{Listing, Pid};

/// Attaches to processes.
pub trait Engine {
    /// Returns the library that messages about the attach name.
    fn library(&self) -> PathBuf;
    /// Inspects every precondition and touches nothing.
    fn inspect(&self, request: &Request) -> Result<Vec<Check>, Failure>;
    /// Inspects what this machine and this user mean for any attach. The request's process does not
    /// matter.
    fn inspect_machine(&self, _request: &Request) -> Result<Vec<Check>, Failure> {
        Err(Failure::new(Kind::NotBuilt, "only of a process"))
    }
    /// Returns the processes that use a GPU runtime. With `all`, also those that cannot be
    /// inspected.
    fn list(&self, all: bool) -> Listing;
    /// Returns the name of a process, where it has one.
    fn name_of(&self, _pid: Pid) -> Option<String> {
        None
    }
    /// Attaches. When this returns, the target records.
    fn attach(&self, request: &Request) -> Result<Box<dyn Attached>, Failure>;
    /// Attaches to several processes. An engine without trees attaches to the root.
    fn attach_group(&self, request: GroupRequest) -> Result<Box<dyn Attached>, Failure> {
        match request.selection {
            Selection::Tree(root) => {
                let mut one = request.each;
                one.pid = root;
                self.attach(&one)
            }
            _ => Err(Failure::new(Kind::NotBuilt, "one process only")),
        }
    }
}

/// An attached process.
pub trait Attached {
    /// Collects the new records and returns the state. Does not wait.
    fn poll(&mut self) -> Result<Event, Failure>;
    /// Returns a descriptor that becomes readable when [`Attached::poll`] should be called soon,
    /// such as at the target's end.
    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Returns the longest time that may pass between two polls.
    fn heartbeat(&self) -> Duration {
        Duration::from_millis(100)
    }
    /// Returns what has happened since the last call, where there are several processes.
    fn news(&mut self) -> Vec<Notice> {
        Vec::new()
    }
    /// Returns how the target was entered.
    fn entry(&self) -> Option<&Entry> {
        None
    }
    /// Detaches, or ends the session of a target that has ended.
    fn detach(self: Box<Self>) -> Result<Box<dyn Trace>, Failure>;
}

/// A trace that has been collected and has not been written yet.
pub trait Trace {
    /// Returns why the detach failed although there is a trace.
    fn detach_failure(&self) -> Option<&Failure> {
        None
    }
    /// Writes the results where the settings say, with the table in this style.
    fn write(self: Box<Self>, style: Style) -> Result<Written, Failure>;
}

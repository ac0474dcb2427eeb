//! Fault injection for tests: a fault after the n-th operation, or at a named point.
//!
//! Two promises need this. The attacher may die after *any* single operation, and the target is
//! unharmed. The target may end after any operation, and the attacher reports the right error. Only
//! a count can cover all operations, including those that a later change adds, so the count is
//! here, below the engine. Every operation that changes a target, or that a session depends on,
//! calls [`step`] (or [`count`]) when it is done. Places that are not operations, such as the
//! moment between a decision and the next call, are named by [`point`] and not counted. Where no
//! fault is armed, each call costs one relaxed load.
//! relaxed load.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A step that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The number of steps done, including this one; the first is 1.
    pub number: u64,
    /// The name of the step, or file and line of the source where it was given no name.
    pub name: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.number, self.name)
    }
}

/// What happens after the step.
pub enum Action {
    /// This process dies by SIGKILL.
    DieHere,
    /// This function is called once, on the thread that did the step, before that thread goes on.
    Strike(Box<dyn FnOnce(&Step) + Send>),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::DieHere => "DieHere",
            Action::Strike(_) => "Strike",
        })
    }
}

static ARMED: AtomicBool = AtomicBool::new(false);
static DONE: AtomicU64 = AtomicU64::new(0);
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static PLAN: Mutex<Option<(When, Action)>> = Mutex::new(None);

/// When an armed fault happens.
#[derive(Debug)]
enum When {
    /// After the step with this number, counted from the arming; the first is 1.
    Step(u64),
    /// At the point or after the step with this name.
    Named(String),
}

/// Arms a fault: `action` happens after `number` more steps (1 is the next one). It replaces a
/// fault that was armed before.
pub fn arm(number: u64, action: Action) {
    arm_when(When::Step(number), action);
}

/// Arms a fault: `action` happens when the point or step with this name is reached next. It
/// replaces a fault that was armed before.
pub fn arm_at(name: &str, action: Action) {
    arm_when(When::Named(name.to_owned()), action);
}

fn arm_when(when: When, action: Action) {
    let mut plan = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
    DONE.store(0, Ordering::SeqCst);
    NAMES.lock().unwrap_or_else(PoisonError::into_inner).clear();
    *plan = Some((when, action));
    ARMED.store(true, Ordering::SeqCst);
}

/// Disarms the fault. Returns how many steps were done since it was armed, and whether it has
/// happened.
pub fn disarm() -> (u64, bool) {
    let mut plan = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
    ARMED.store(false, Ordering::SeqCst);
    let happened = plan.take().is_none();
    (DONE.load(Ordering::SeqCst), happened)
}

/// The number of steps done since a fault was armed; 0 if none ever was.
pub fn operations() -> u64 {
    DONE.load(Ordering::SeqCst)
}

/// The names of the steps done since a fault was armed, in order.
pub fn steps() -> Vec<String> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Tells that a step was done, and names it by file and line.
#[track_caller]
pub fn count() {
    if ARMED.load(Ordering::Relaxed) {
        let place = Location::caller();
        happened(format!("{}:{}", place.file(), place.line()));
    }
}

/// Tells that the step with this name was done.
pub fn step(name: &'static str) {
    if ARMED.load(Ordering::Relaxed) {
        happened(name.to_owned());
    }
}

/// Tells that the point with this name is reached. It is no operation, so it is not counted: only a
/// fault armed by name can happen here.
pub fn point(name: &'static str) {
    if ARMED.load(Ordering::Relaxed) {
        let plan = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = DONE.load(Ordering::SeqCst);
        strike(plan, name.to_owned(), number, false);
    }
}

#[cold]
fn happened(name: String) {
    let plan = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
    let number = DONE.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
    NAMES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(name.clone());
    strike(plan, name, number, true);
}

/// Does what is planned for this step or point, if anything.
fn strike(
    mut plan: MutexGuard<'_, Option<(When, Action)>>,
    name: String,
    number: u64,
    counted: bool,
) {
    let due = plan.as_ref().is_some_and(|(when, _)| match when {
        When::Step(wanted) => counted && number == *wanted,
        When::Named(wanted) => *wanted == name,
    });
    if !due {
        return;
    }
    let planned = plan.take();
    drop(plan);
    let step = Step { number, name };
    match planned {
        Some((_, Action::DieHere)) => {
            // For the test's message. The process dies even if standard error is closed.
            let _unheard = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("dies after {step}\n").as_bytes(),
            );
            die()
        }
        Some((_, Action::Strike(strike))) => strike(&step),
        None => {}
    }
}

/// Sends a signal to a process, for use in a strike. The test's target may be gone already.
pub fn signal(pid: crate::Pid, signal: i32) {
    // SAFETY: kill takes two numbers.
    unsafe { libc::kill(pid.raw(), signal) };
}

/// Stops this process at this very place, as its user may. The signal goes to the calling thread,
/// which therefore does not run on until another thread has taken it.
pub fn stop_here() {
    // SAFETY: raise takes a number.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Ends this process as a crash or the OOM killer would: no destructor runs.
pub fn die() -> ! {
    // SAFETY: kill and getpid take no pointers. SIGKILL to ourselves ends the process; the loop
    // covers the instant before that.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
    }
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_strikes_once_after_the_step_named() {
        step("before anybody armed it");
        let (tell, told) = std::sync::mpsc::channel();
        arm(
            2,
            Action::Strike(Box::new(move |step| tell.send(step.clone()).unwrap())),
        );
        step("first");
        assert!(told.try_recv().is_err());
        step("second");
        assert_eq!(told.try_recv().unwrap().to_string(), "step 2: second");
        count();
        assert_eq!(disarm(), (3, true));
        assert_eq!(steps()[..2], ["first", "second"]);
        arm(9, Action::DieHere);
        count();
        assert_eq!(disarm(), (1, false));
        step("nobody is armed");
        assert_eq!(operations(), 1);
        let (tell, told) = std::sync::mpsc::channel();
        arm_at(
            "here",
            Action::Strike(Box::new(move |step| tell.send(step.clone()).unwrap())),
        );
        step("elsewhere");
        point("there");
        assert!(told.try_recv().is_err());
        point("here");
        assert_eq!(told.try_recv().unwrap().to_string(), "step 1: here");
        point("here");
        assert_eq!(disarm(), (1, true));
    }
}

//! How far a session without an attacher is, what it is, and what it is to do.

use midair_lockfree::word_enum;

word_enum! {
    /// What kind of session a tool is in.
    pub enum Kind else Engine {
        /// An attacher of ours reads the spool.
        Engine = 0,
        /// Somebody else's injector attached.
        Attached = 1,
        /// The process was started with the tool.
        Launched = 2,
        /// It was, and is about to become another program, with which it goes on.
        Becoming = 3,
    }
}

word_enum! {
    /// How far a session without an attacher is.
    pub enum Phase else Off {
        /// No thread.
        Off = 0,
        /// Setting up.
        Starting = 1,
        /// Launched; no runtime is loaded.
        Watching = 2,
        /// Recording.
        On = 3,
        /// Recording has ended, nothing is hooked; what is left is to be finished by whoever asked.
        Stopped = 4,
    }
}

word_enum! {
    /// What the worker thread is to do.
    pub enum Command else Run {
        /// Go on.
        Run = 0,
        /// Stop, and detach the tools.
        Detach = 1,
        /// Stop; the asking thread ends the tools.
        Leave = 2,
        /// Stop and end the tools: the asking thread cannot, it is inside a signal handler.
        Finish = 3,
        /// Stop; a session that an attacher offers goes on with the contexts that run.
        MakeWay = 4,
    }
}

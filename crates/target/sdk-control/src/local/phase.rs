//! The phase of a session without an attacher, its kind, and its commands.

use midair_lockfree::word_enum;

word_enum! {
    /// The kind of session that a tool is in.
    pub enum Kind else Engine {
        /// A midair attacher reads the spool.
        Engine = 0,
        /// Another injector attached.
        Attached = 1,
        /// The process was started with the tool.
        Launched = 2,
        /// The process was started with the tool, and is about to execute another program, with
        /// which recording continues.
        Becoming = 3,
    }
}

word_enum! {
    /// The phase of a session without an attacher.
    pub enum Phase else Off {
        /// There is no thread.
        Off = 0,
        /// Setting up.
        Starting = 1,
        /// Launched; no runtime is loaded.
        Watching = 2,
        /// Recording.
        On = 3,
        /// Recording has ended and nothing is hooked. The thread that requested the end does the
        /// rest.
        Stopped = 4,
    }
}

word_enum! {
    /// A command to the worker thread.
    pub enum Command else Run {
        /// Go on.
        Run = 0,
        /// Stop, and detach the tools.
        Detach = 1,
        /// Stop; the requesting thread ends the tools.
        Leave = 2,
        /// Stop and end the tools, since the requesting thread is inside a signal handler and
        /// cannot.
        Finish = 3,
        /// Stop; the session that an attacher offers continues with the running contexts.
        MakeWay = 4,
    }
}

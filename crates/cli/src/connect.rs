//! The engine of this build, as the command lines need it.

use std::path::PathBuf;

use midair_session::{Failure, Kind};

use crate::engine::{Attached, Check, Engine, Request};

/// SONAME of the library that AMD's messages name.
const LIBRARY: &str = "librocprofiler-sdk-rocattach.so.1";

/// The attaching side of `midair-session`.
#[derive(Debug, Default)]
pub struct SessionEngine;

impl Engine for SessionEngine {
    fn library(&self) -> PathBuf {
        let installed = std::env::current_exe().ok().and_then(|exe| {
            let library = exe.parent()?.parent()?.join("lib").join(LIBRARY);
            library.exists().then_some(library)
        });
        installed.unwrap_or_else(|| PathBuf::from(LIBRARY))
    }

    fn look(&self, _pid: u32) -> Result<Vec<Check>, Failure> {
        Err(not_connected())
    }

    fn attach(&self, _request: Request) -> Result<Box<dyn Attached>, Failure> {
        Err(not_connected())
    }
}

fn not_connected() -> Failure {
    Failure::new(
        Kind::NotBuilt,
        "the command lines are not connected to the attaching side in this build",
    )
}

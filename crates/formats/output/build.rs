//! Compiles the messages of Perfetto's format (`proto/`). This needs no protoc, which a machine may
//! not have.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let messages = protox::compile(["perfetto.proto"], ["proto"])?;
    prost_build::Config::new().compile_fds(messages)?;
    Ok(())
}

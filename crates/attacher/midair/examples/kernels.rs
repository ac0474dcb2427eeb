//! Records the kernels of a process for two seconds, and prints how long each of them ran in all:
//! `cargo run -p midair --example kernels PID`.

use std::collections::BTreeMap;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: kernels PID")?;
    let attach = midair::Attach::new(pid.parse()?)
        .kernels()
        .duration(Duration::from_secs(2));
    let recording = match attach.run() {
        Ok(recording) => recording,
        Err(error) => {
            eprintln!("{error}\nhint: {}", error.remedy());
            std::process::exit(error.kind().exit_code().into());
        }
    };
    let mut all: BTreeMap<_, u64> = BTreeMap::new();
    for kernel in recording.kernels() {
        let kernel = kernel?;
        *all.entry(kernel.name.clone()).or_default() += kernel.duration();
    }
    for (name, ns) in &all {
        println!("{ns:>12} ns  {name}");
    }
    Ok(())
}

//! `cargo run -p midair --example kernels PID`
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: kernels PID")?;
    let recording = midair::Attach::new(pid.parse()?)
        .kernels()
        .duration(Duration::from_secs(1))
        .run()?;
    for kernel in recording.kernels() {
        let kernel = kernel?;
        println!("{} {} ns", kernel.name, kernel.duration());
    }
    recording.to_file(midair::Format::Pftrace, "trace")?;
    Ok(())
}

//! `midair` as one file: the program, with libraries, helper and licence behind its end.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use midair_bundle::{Carried, append};

use super::{Release, tree};
use midair_dev_kit::run::{At, Failure, Outcome};
use midair_dev_stage::layout::DEMO;

/// What it carries: everything that goes into a target or into a program that is started. The C API
/// (`librocprofiler-sdk-rocattach`, rocpd) is for other programs to link, and is not in it. What lies
/// below [`DEMO`] is carried, too.
const CARRIED: [&str; 12] = [
    "lib/libmidair-cuda.so",
    "lib/librocprofiler-register.so.0",
    "lib/librocprofiler-sdk-attach.so.1",
    "lib/librocprofiler-sdk-roctx.so.1",
    "lib/librocprofiler-sdk.so.1",
    "lib/rocprofiler-sdk/libmidair-kokkos.so.1",
    "lib/rocprofiler-sdk/libmidair-launch.so.1",
    "lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
    "lib/rocprofiler-sdk/midair-aqlprofile",
    "lib/rocprofiler-sdk/midair-collector",
    "lib/rocprofiler-sdk/midair-disassemble",
    "lib/rocprofiler-sdk/midair-nvmetrics",
];

/// Makes it.
pub fn make(release: &Release) -> Outcome<Vec<PathBuf>> {
    let read = |name: &str| {
        let path = release.prefix.join(name);
        let bytes = std::fs::read(&path).at("reading", &path)?;
        Ok((name.to_owned(), tree::is_executable(&path)?, bytes))
    };
    let program = read("bin/midair")?.2;
    let mut names: Vec<String> = CARRIED.map(str::to_owned).into();
    tree::copy(&release.prefix, &release.work.join("none"), &mut |name| {
        if name.starts_with(DEMO) {
            names.push(name.to_owned());
        }
        false
    })?;
    names.sort();
    let files = names.iter().map(|name| read(name));
    let files: Vec<_> = files.collect::<Outcome<_>>()?;
    let carried: Vec<Carried<'_>> = files
        .iter()
        .map(|(name, executable, bytes)| Carried {
            name,
            executable: *executable,
            bytes,
        })
        .collect();
    let whole = append(&program, &carried).map_err(|error| Failure(error.to_string()))?;
    let to = release.to.join(format!(
        "midair-{}-{}-linux",
        release.version, release.machine
    ));
    std::fs::write(&to, whole).at("writing", &to)?;
    std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).at("writing", &to)?;
    Ok(vec![to])
}

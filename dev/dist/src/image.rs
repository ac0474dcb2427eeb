//! An OCI image of the attacher, for a pod that sees the processes of its host: the one file and the C
//! library that it needs, nothing else.
//!
//! The archive is an image layout, which `docker load`, `podman load` and `skopeo` read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{Release, one_file, package, tree};
use midair_dev_kit::run::{At, Outcome, failed, output, run};

/// Where the one file lies in it.
const PROGRAM: &str = "usr/bin/midair";

/// Makes it.
pub fn make(release: &Release) -> Outcome<Vec<PathBuf>> {
    let machine = match release.machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => return failed(format!("OCI has no name for {other}")),
    };
    let work = release.work.join("image");
    let (layer, layout) = (work.join("root"), work.join("layout"));
    tree::anew(&work)?;
    let program = layer.join(PROGRAM);
    tree::make_parent(&program)?;
    for file in one_file::make(release)? {
        fs::copy(&file, &program).at("copying", &file)?;
    }
    for (library, place) in libraries(release)? {
        let to = layer.join(place.strip_prefix("/").unwrap_or(&place));
        tree::make_parent(&to)?;
        // What a link leads to: the loader asks for this name.
        fs::copy(&library, &to).at("copying", &library)?;
    }
    let tmp = layer.join("tmp");
    fs::create_dir_all(&tmp).at("making", &tmp)?;

    let plain = work.join("layer.tar");
    tree::pack_plain(&layer, &plain, release.time)?;
    let content = sha256(&plain)?;
    run(Command::new("gzip").args(["-n", "-9"]).arg(&plain))?;
    let zipped = work.join("layer.tar.gz");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).at("making", &blobs)?;
    let of_layer = blob(&blobs, &fs::read(&zipped).at("reading", &zipped)?)?;
    let created = date(release.time)?;
    let config = json!({
        "architecture": machine,
        "os": "linux",
        "created": created,
        "config": {
            "Entrypoint": [format!("/{PROGRAM}")],
            "Labels": {
                "org.opencontainers.image.title": "midair",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{content}")] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    });
    let of_config = blob(&blobs, config.to_string().as_bytes())?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("application/vnd.oci.image.config.v1+json", &of_config),
        "layers": [described("application/vnd.oci.image.layer.v1.tar+gzip", &of_layer)],
    });
    let mut of_manifest = described(
        "application/vnd.oci.image.manifest.v1+json",
        &blob(&blobs, manifest.to_string().as_bytes())?,
    );
    of_manifest["platform"] = json!({ "architecture": machine, "os": "linux" });
    of_manifest["annotations"] =
        json!({ "org.opencontainers.image.ref.name": format!("midair:{}", release.version) });
    let index = json!({ "schemaVersion": 2, "manifests": [of_manifest] });
    package::write(
        &layout.join("index.json"),
        index.to_string().as_bytes(),
        0o644,
    )?;
    package::write(
        &layout.join("oci-layout"),
        br#"{"imageLayoutVersion":"1.0.0"}"#,
        0o644,
    )?;
    let to = release.to.join(format!(
        "midair-{}-{}-oci.tar",
        release.version, release.machine
    ));
    tree::pack_plain(&layout, &to, release.time)?;
    Ok(vec![to])
}

/// A blob: its sum, by which it is named, and its size.
struct Blob {
    sum: String,
    size: usize,
}

fn blob(blobs: &Path, bytes: &[u8]) -> Outcome<Blob> {
    let new = blobs.join("new");
    fs::write(&new, bytes).at("writing", &new)?;
    let sum = sha256(&new)?;
    fs::rename(&new, blobs.join(&sum)).at("writing", &new)?;
    let size = bytes.len();
    Ok(Blob { sum, size })
}

fn described(kind: &str, blob: &Blob) -> Value {
    json!({ "mediaType": kind, "digest": format!("sha256:{}", blob.sum), "size": blob.size })
}

fn sha256(file: &Path) -> Outcome<String> {
    let line = output(Command::new("sha256sum").arg(file))?;
    let line = String::from_utf8_lossy(&line);
    Ok(line.split(' ').next().unwrap_or_default().to_owned())
}

fn date(time: u64) -> Outcome<String> {
    let words = ["--utc", "+%Y-%m-%dT%H:%M:%SZ"];
    let date = output(
        Command::new("date")
            .args(words)
            .arg(format!("--date=@{time}")),
    )?;
    Ok(String::from_utf8_lossy(&date).trim().to_owned())
}

/// The libraries that the program and its helper are linked with, and their loader: where this machine has them,
/// and where they belong.
fn libraries(release: &Release) -> Outcome<Vec<(PathBuf, PathBuf)>> {
    let mut libraries = Vec::new();
    for program in [
        "bin/midair",
        "lib/rocprofiler-sdk/midair-aqlprofile",
        "lib/rocprofiler-sdk/midair-collector",
    ] {
        let program = release.prefix.join(program);
        match release.of.sysroot() {
            Some(sysroot) => crossed(&program, Path::new(&sysroot), &mut libraries)?,
            None => {
                let said = output(Command::new("ldd").arg(program))?;
                let said = String::from_utf8_lossy(&said);
                let words = said.lines().flat_map(str::split_whitespace);
                let paths = words
                    .filter(|word| word.starts_with('/'))
                    .map(PathBuf::from);
                libraries.extend(paths.map(|path| (path.clone(), path)));
            }
        }
    }
    libraries.sort();
    libraries.dedup();
    Ok(libraries)
}

/// The same of a program of another machine, from the libraries that its compiler links with.
fn crossed(program: &Path, sysroot: &Path, found: &mut Vec<(PathBuf, PathBuf)>) -> Outcome<()> {
    let said = output(
        Command::new("readelf")
            .args(["--wide", "-d", "-l"])
            .arg(program),
    )?;
    for line in String::from_utf8_lossy(&said).lines() {
        let name = if line.contains("(NEEDED)") {
            line.split(['[', ']']).nth(1)
        } else if line.contains("program interpreter:") {
            let path = line
                .split(": ")
                .nth(1)
                .and_then(|path| path.strip_suffix(']'));
            path.and_then(|path| path.rsplit('/').next())
        } else {
            None
        };
        if let Some(name) = name {
            let pair = (sysroot.join("lib").join(name), Path::new("/lib").join(name));
            if !found.contains(&pair) {
                let library = pair.0.clone();
                found.push(pair);
                crossed(&library, sysroot, found)?;
            }
        }
    }
    Ok(())
}

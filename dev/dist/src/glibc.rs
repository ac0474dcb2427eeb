//! Which C library the shipped files need.

use std::fs;
use std::path::Path;
use std::process::Command;

use midair_dev_kit::run::{At, Outcome, output};

/// The newest version of glibc (as in `(2, 34)`) whose symbols one of the files below the directory uses.
pub fn needed(directory: &Path) -> Outcome<(u32, u32)> {
    let mut newest = (2, 0);
    let entries = fs::read_dir(directory).at("listing", directory)?;
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let kind = entry.file_type().at("looking at", &path)?;
        let of_file = if kind.is_dir() {
            needed(&path)?
        } else if kind.is_file()
            && fs::read(&path)
                .at("reading", &path)?
                .starts_with(b"\x7fELF")
        {
            let mut readelf = Command::new("readelf");
            let text = output(readelf.args(["--wide", "--version-info"]).arg(&path))?;
            newest_of(&String::from_utf8_lossy(&text))
        } else {
            continue;
        };
        newest = newest.max(of_file);
    }
    Ok(newest)
}

/// The newest `GLIBC_x.y` of this text.
fn newest_of(text: &str) -> (u32, u32) {
    let versions = text.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|byte: char| !byte.is_ascii_digit() && byte != '.');
        let mut numbers = rest.get(..end.unwrap_or(rest.len()))?.split('.');
        let mut number = || numbers.next()?.parse::<u32>().ok();
        Some((number()?, number()?))
    });
    versions.max().unwrap_or((2, 0))
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_compared_as_numbers() {
        let text = "Name: GLIBC_2.9  Flags: none\n Name: GLIBC_2.34\n GLIBC_2.2.5\n GLIBC_PRIVATE";
        assert_eq!(super::newest_of(text), (2, 34));
        assert_eq!(super::newest_of("nothing"), (2, 0));
    }
}

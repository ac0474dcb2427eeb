//! A copy of a code object, out of a file or out of the memory of the process that has loaded it.

use midair_output::Object;
use midair_procinfo::Pid;
use midair_procinfo::files::Place;
use midair_procinfo::module::Modules;
use midair_ptrace::RemoteAddr;
use std::os::unix::fs::FileExt;

/// The most bytes of all copies of a session.
pub(crate) const MOST: usize = 256 << 20;
/// How much is read at a time.
const STEP: usize = 4 << 20;

/// A copy.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) bytes: Vec<u8>,
}

impl Copied {
    /// Reads a code object of at most `most` bytes.
    pub(crate) fn read(pid: Pid, object: &Object, most: usize) -> Result<Copied, String> {
        let (base, size) = (object.record.memory_base, object.record.memory_size);
        let bytes = if base != 0 {
            let len = fits(size, most)?;
            memory(pid, base, len)?
        } else {
            let (path, offset, size) = file(&object.uri)
                .ok_or_else(|| "the runtime does not say where it is".to_owned())?;
            let open = || Place::root_of(pid)?.open(path);
            let file = open().map_err(|error| format!("cannot open its file: {error}"))?;
            let whole = file.metadata().map_or(0, |metadata| metadata.len());
            let size = size.unwrap_or(whole.saturating_sub(offset));
            let mut bytes = vec![0; fits(size, most)?];
            file.read_exact_at(&mut bytes, offset)
                .map_err(|error| format!("cannot read its file: {error}"))?;
            bytes
        };
        Ok(Copied { bytes })
    }
}

fn fits(size: u64, most: usize) -> Result<usize, String> {
    let len = usize::try_from(size).ok().filter(|len| *len <= most);
    len.ok_or_else(|| format!("it is too large ({} MiB)", size >> 20))
}

/// Copies memory of the process. It grows with what is there, whatever the size says.
fn memory(pid: Pid, base: u64, len: usize) -> Result<Vec<u8>, String> {
    let cannot = |error: &dyn std::fmt::Display| format!("cannot read it: {error}");
    let modules = Modules::of(pid).map_err(|error| cannot(&error))?;
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let at = bytes.len();
        let step = STEP.min(len - at);
        let from = base.saturating_add(at as u64);
        let part = modules.memory().read_vec(RemoteAddr::new(from), step);
        bytes.extend(part.map_err(|error| cannot(&error))?);
    }
    Ok(bytes)
}

/// Reads a URI of a file: `file:///path#offset=4096&size=7480`, with the path in escaped form. Without an
/// offset it is the whole file.
fn file(uri: &[u8]) -> Option<(String, u64, Option<u64>)> {
    let text = std::str::from_utf8(uri).ok()?;
    let rest = text.strip_prefix("file://")?;
    let (path, fragment) = match rest.split_once(['#', '?']) {
        Some((path, fragment)) => (path, fragment),
        None => (rest, ""),
    };
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let value = |name: &str| {
        let mut parts = fragment.split('&').filter_map(|part| part.split_once('='));
        let found = parts.find(|(key, _)| *key == name);
        found.map(|(_, value)| number(value))
    };
    let offset = value("offset").map_or(Some(0), |offset| offset)?;
    let size = match value("size") {
        Some(size) => Some(size?),
        None => None,
    };
    Some((unescaped(path)?, offset, size))
}

fn unescaped(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'%' => (digit(rest.next())? << 4 | digit(rest.next())?) as u8,
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::CodeObject;

    fn object(record: CodeObject, uri: &str) -> Object {
        Object {
            record,
            uri: uri.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_file_is_named_by_its_uri() {
        let of = |uri: &str| file(uri.as_bytes());
        let whole = of("file:///opt/a%20b.co");
        assert_eq!(whole, Some(("/opt/a b.co".into(), 0, None)));
        let part = of("file:///x#offset=0x1000&size=74");
        assert_eq!(part, Some(("/x".into(), 4096, Some(74))));
        for odd in [
            "memory://1#offset=1&size=2",
            "",
            "file:///x#offset=z",
            "file:///%4",
        ] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_copy_is_bounded_and_comes_from_memory_or_a_file() {
        let me = Pid::own();
        let there: Vec<u8> = (0..=255).collect();
        let mut record = CodeObject {
            memory_base: there.as_ptr() as u64,
            memory_size: 256,
            ..CodeObject::default()
        };
        let read = |record, uri, most| Copied::read(me, &object(record, uri), most);
        assert_eq!(read(record, "", 256).unwrap().bytes, there);
        assert_eq!(
            read(record, "", 255).unwrap_err(),
            "it is too large (0 MiB)"
        );
        record.memory_size = u64::MAX;
        assert!(read(record, "", MOST).unwrap_err().contains("too large"));
        (record.memory_base, record.memory_size) = (16, 64);
        assert!(read(record, "", MOST).unwrap_err().contains("cannot read"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &there).unwrap();
        record.memory_base = 0;
        let uri = format!("file://{}#offset=10&size=20", file.path().display());
        assert_eq!(read(record, &uri, MOST).unwrap().bytes, there[10..30]);
        let beyond = format!("file://{}#offset=250&size=20", file.path().display());
        assert!(read(record, &beyond, MOST).is_err());
        // A pipe would block whoever opens it.
        assert!(read(record, "file:///dev/zero#size=8", MOST).is_err());
    }
}

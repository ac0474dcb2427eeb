//! Raw argument words as text.
//!
//! A pointer is printed and never followed: the memory is the target's, may be gone, and was not
//! copied. This differs from AMD's tool, which prints the text behind `char *`.

use crate::digits;
use midair_trace::api::{Field, Parameter, Shape};
use std::fmt::Write;

/// Calls `each` with the text of every parameter whose words are there. The text is made in `text`,
/// which saves an allocation for each call.
pub(crate) fn each<'p, E>(
    parameters: &'p [Parameter],
    words: &[u8],
    text: &mut String,
    mut each: impl FnMut(&'p Parameter, &str) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = 0;
    for parameter in parameters {
        let end = at + parameter.shape.words() * 8;
        // A shorter record comes from another version of the runtime. The words that are there are
        // still right.
        let Some(value) = words.get(at..end) else {
            break;
        };
        text.clear();
        print(text, &parameter.shape, value);
        each(parameter, text)?;
        at = end;
    }
    Ok(())
}

/// Appends a value's text. Writing to a String cannot fail, hence the ignored results below.
fn print(out: &mut String, shape: &Shape, bytes: &[u8]) {
    match shape {
        Shape::Pointer => match unsigned(bytes, 8) {
            0 => out.push_str("(null)"),
            address => digits::text_hex(out, address),
        },
        Shape::Signed(size) => digits::text_i64(out, signed(bytes, *size)),
        Shape::Unsigned(size) => digits::text_u64(out, unsigned(bytes, *size)),
        Shape::Float(4) => drop(write!(out, "{}", f32::from_bits(unsigned(bytes, 4) as u32))),
        Shape::Float(_) => drop(write!(out, "{}", f64::from_bits(unsigned(bytes, 8)))),
        Shape::Enum { prefix, values } => {
            let value = signed(bytes, 4);
            match values.iter().find(|(known, _)| *known == value) {
                Some((_, name)) => out.push_str(name),
                None => drop(write!(out, "{prefix}_UNKNOWN={value}")),
            }
        }
        Shape::Struct(fields) => print_struct(out, fields, bytes),
        Shape::Bytes(size) => {
            out.push_str("0x");
            for byte in bytes.iter().take(*size as usize) {
                let _ = write!(out, "{byte:02x}");
            }
        }
    }
}

/// Appends a struct, the last field first, as AMD prints `dim3`.
fn print_struct(out: &mut String, fields: &[Field], bytes: &[u8]) {
    out.push('{');
    for (n, field) in fields.iter().rev().enumerate() {
        if n > 0 {
            out.push_str(", ");
        }
        out.push_str(&field.name);
        out.push('=');
        print(
            out,
            &field.shape,
            bytes.get(field.offset as usize..).unwrap_or_default(),
        );
    }
    out.push('}');
}

/// Returns the words of a call's arguments, whose texts were made by [`each`]. A text that is no value
/// of its parameter becomes zeros; the second number counts these. AMD's tool prints the text behind
/// `char *`, which no word has.
pub fn words_of<'t>(
    parameters: &[Parameter],
    texts: impl IntoIterator<Item = &'t str>,
) -> (Vec<u8>, u64) {
    let (mut words, mut unknown) = (Vec::new(), 0);
    for (parameter, text) in parameters.iter().zip(texts) {
        let from = words.len();
        words.resize(from + parameter.shape.words() * 8, 0);
        let place = words.get_mut(from..).unwrap_or_default();
        if !matches!(scan(&parameter.shape, text, false, place), Some("")) {
            place.fill(0);
            unknown += 1;
        }
    }
    (words, unknown)
}

/// Reads a value into its bytes, and returns what follows its text. A value in a struct ends before a
/// comma or a brace.
fn scan<'t>(shape: &Shape, text: &'t str, inside: bool, bytes: &mut [u8]) -> Option<&'t str> {
    if let Shape::Struct(fields) = shape {
        let mut rest = text.strip_prefix('{')?;
        for (n, field) in fields.iter().rev().enumerate() {
            if n > 0 {
                rest = rest.strip_prefix(", ")?;
            }
            rest = rest.strip_prefix(field.name.as_ref())?.strip_prefix('=')?;
            let place = bytes.get_mut(field.offset as usize..)?;
            rest = scan(&field.shape, rest, true, place)?;
        }
        return rest.strip_prefix('}');
    }
    let end = match inside {
        true => text.find([',', '}'])?,
        false => text.len(),
    };
    let (text, rest) = text.split_at_checked(end)?;
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let word = match shape {
        Shape::Pointer if text == "(null)" => 0,
        Shape::Pointer => hex(text)?,
        Shape::Signed(_) => text.parse::<i64>().ok()? as u64,
        Shape::Unsigned(_) => text.parse().ok()?,
        Shape::Float(4) => u64::from(text.parse::<f32>().ok()?.to_bits()),
        Shape::Float(_) => text.parse::<f64>().ok()?.to_bits(),
        Shape::Enum { prefix, values } => {
            let known = values.iter().find(|(_, name)| name == text);
            let value = known.map(|(value, _)| *value).or_else(|| {
                let number = text.strip_prefix(prefix.as_ref())?;
                number.strip_prefix("_UNKNOWN=")?.parse().ok()
            });
            value? as u64
        }
        Shape::Bytes(size) => {
            let digits = text.strip_prefix("0x")?;
            for (at, byte) in bytes.iter_mut().take(*size as usize).enumerate() {
                *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
            }
            return Some(rest);
        }
        Shape::Struct(_) => return None,
    };
    let size = usize::try_from(shape.size()).ok()?.min(8);
    let place = bytes.get_mut(..size)?;
    place.copy_from_slice(word.to_le_bytes().get(..size)?);
    Some(rest)
}

/// Returns the first `size` bytes as a number. Missing bytes count as zero.
fn unsigned(bytes: &[u8], size: u8) -> u64 {
    // Nearly always the words are whole.
    let whole = bytes
        .first_chunk::<8>()
        .map(|word| u64::from_le_bytes(*word));
    let word = whole.unwrap_or_else(|| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    });
    match size {
        0 => 0,
        1..=7 => word & (u64::MAX >> (64 - 8 * u32::from(size))),
        _ => word,
    }
}

fn signed(bytes: &[u8], size: u8) -> i64 {
    let unused = 64 - 8 * u32::from(size.clamp(1, 8));
    ((unsigned(bytes, size) << unused) as i64) >> unused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(shape: &Shape, words: &[u64]) -> String {
        let parameter = Parameter {
            type_name: "".into(),
            name: "".into(),
            shape: shape.clone(),
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut all = Vec::new();
        each(&[parameter], &bytes, &mut String::new(), |_, text| {
            all.push(text.to_owned());
            Ok::<(), ()>(())
        })
        .unwrap();
        all.join("|")
    }

    #[test]
    fn words_are_printed_by_shape() {
        let dim3 = ["x", "y", "z"]
            .iter()
            .enumerate()
            .map(|(n, name)| Field {
                name: (*name).into(),
                offset: 4 * n as u32,
                shape: Shape::Unsigned(4),
            })
            .collect();
        let kind = Shape::Enum {
            prefix: "hipMemcpy".into(),
            values: vec![(1, "HostToDevice".into())],
        };
        for (shape, words, wanted) in [
            (Shape::Pointer, vec![0x1100e00000], "0x1100e00000"),
            (Shape::Pointer, vec![0], "(null)"),
            (Shape::Signed(4), vec![0xdead_beef_ffff_ffff], "-1"),
            (
                Shape::Unsigned(4),
                vec![0xdead_beef_ffff_ffff],
                "4294967295",
            ),
            (Shape::Unsigned(8), vec![u64::MAX], "18446744073709551615"),
            (Shape::Float(4), vec![u64::from(1.5_f32.to_bits())], "1.5"),
            (Shape::Float(8), vec![0.25_f64.to_bits()], "0.25"),
            (kind.clone(), vec![1], "HostToDevice"),
            (kind, vec![77], "hipMemcpy_UNKNOWN=77"),
            (
                Shape::Struct(dim3),
                vec![256 | 2 << 32, 0xffff_ffff_0000_0003],
                "{z=3, y=2, x=256}",
            ),
            (Shape::Bytes(10), vec![0x0102, 3], "0x02010000000000000300"),
            (Shape::Bytes(10), vec![1], ""),
        ] {
            assert_eq!(text(&shape, &words), wanted, "{shape:?}");
        }
    }

    #[test]
    fn words_are_read_back_from_their_texts() {
        let fields = [("x", 0), ("y", 4)].map(|(name, offset)| Field {
            name: name.into(),
            offset,
            shape: Shape::Unsigned(4),
        });
        let kind = Shape::Enum {
            prefix: "hipMemcpy".into(),
            values: vec![(1, "HostToDevice".into())],
        };
        let outer = vec![Field {
            name: "size".into(),
            offset: 0,
            shape: Shape::Struct(fields.to_vec()),
        }];
        for (shape, words) in [
            (Shape::Pointer, vec![0x1100e00000]),
            (Shape::Pointer, vec![0]),
            (Shape::Signed(4), vec![0xffff_ffff]),
            (Shape::Signed(8), vec![u64::MAX]),
            (Shape::Unsigned(8), vec![u64::MAX]),
            (Shape::Float(4), vec![u64::from(1.5_f32.to_bits())]),
            (Shape::Float(8), vec![0.1_f64.to_bits()]),
            (kind.clone(), vec![1]),
            (kind, vec![77]),
            (Shape::Struct(fields.to_vec()), vec![256 | 2 << 32]),
            (Shape::Struct(outer), vec![256 | 2 << 32]),
            (Shape::Bytes(10), vec![0x0102, 3]),
        ] {
            let printed = text(&shape, &words);
            let parameter = Parameter {
                type_name: "".into(),
                name: "".into(),
                shape: shape.clone(),
            };
            let wanted: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let found = words_of(&[parameter], [printed.as_str()]);
            assert_eq!(found, (wanted, 0), "{shape:?}");
        }
        let name = Parameter {
            type_name: "PKc".into(),
            name: "name".into(),
            shape: Shape::Pointer,
        };
        assert_eq!(words_of(&[name], ["vadd"]), (vec![0; 8], 1));
    }

    #[test]
    fn a_number_has_the_bytes_of_its_size() {
        let bytes = [0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9];
        for (size, wanted) in [
            (0, 0),
            (1, 0xf1),
            (4, 0xf4f3_f2f1),
            (7, 0xf7_f6f5_f4f3_f2f1),
            (8, 0xf8f7_f6f5_f4f3_f2f1),
            (16, 0xf8f7_f6f5_f4f3_f2f1),
        ] {
            assert_eq!(unsigned(&bytes, size), wanted, "{size}");
        }
        assert_eq!(unsigned(&bytes[..2], 4), 0xf2f1);
        assert_eq!(signed(&bytes, 2), 0xf2f1 - 0x1_0000);
    }
}

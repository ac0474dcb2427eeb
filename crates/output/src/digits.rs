//! Numbers as text. Most bytes of a trace are digits: the formatting machinery of std takes several
//! times as long.

/// Appends a number in decimal.
pub(crate) fn push(out: &mut Vec<u8>, number: impl Into<i128>) {
    let number = number.into();
    let mut digits = [0_u8; 40];
    let mut at = digits.len();
    // 64 bits are enough for all but the sign: dividing 128 bits is slow.
    let mut rest = u64::try_from(number.unsigned_abs()).unwrap_or(u64::MAX);
    loop {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_of_all_sizes() {
        for number in [
            0,
            1,
            9,
            10,
            -1,
            i128::from(i64::MIN),
            i128::from(u64::MAX),
            1_000_000_007,
        ] {
            let mut out = Vec::new();
            super::push(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}

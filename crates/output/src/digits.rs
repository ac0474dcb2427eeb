//! Numbers as text. Most bytes of a trace are digits: the formatting machinery of std takes several
//! times as long.

/// The two digits of each number below 100.
const PAIRS: &[u8; 200] = b"\
00010203040506070809101112131415161718192021222324252627282930313233343536373839\
40414243444546474849505152535455565758596061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// Appends a number in decimal.
pub(crate) fn push(out: &mut Vec<u8>, number: impl Into<i128>) {
    let number = number.into();
    if number < 0 {
        out.push(b'-');
    }
    // 64 bits are enough for all but the sign: dividing 128 bits is slow.
    push_u64(
        out,
        u64::try_from(number.unsigned_abs()).unwrap_or(u64::MAX),
    );
}

/// Appends a number in decimal, two digits at a time.
pub(crate) fn push_u64(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = number;
    while rest >= 10 {
        let pair = (rest % 100) as usize * 2;
        rest /= 100;
        at -= 2;
        if let (Some(to), Some(from)) = (digits.get_mut(at..at + 2), PAIRS.get(pair..pair + 2)) {
            to.copy_from_slice(from);
        }
    }
    // A single digit is left where their count is odd, and where the number is 0.
    if rest > 0 || number == 0 {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + rest as u8;
        }
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
            99,
            100,
            101,
            999,
            1000,
            12_345_678_901,
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

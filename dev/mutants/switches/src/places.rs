//! Finds the marks in a changed file: comments around each mutant and each place with mutants.

/// A mutant's number, and where its code starts and ends.
type Arms = Vec<(u32, usize, usize)>;
/// The numbers of a place's mutants, and where it starts and ends.
type Sites = Vec<(Vec<u32>, usize, usize)>;

/// The mark before a mutant's code.
pub fn arm(number: u32, code: &str) -> String {
    format!("/*<arm {number}*/{code}/*arm>*/")
}

/// The mark before a place with mutants.
pub fn site_begins(numbers: &[u32]) -> String {
    let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!("/*<site {}*/", words.join(" "))
}

/// The mark behind it.
pub const SITE_ENDS: &str = "/*site>*/";

/// Finds all marks.
pub fn read(text: &str) -> Result<(Arms, Sites), String> {
    let (mut arms, mut sites) = (Vec::new(), Vec::new());
    let (mut open_arms, mut open_sites) = (Vec::new(), Vec::new());
    let mut from = 0;
    while let Some(found) = text[from..].find("/*") {
        let begin = from + found;
        let Some(length) = text[begin..].find("*/") else {
            break;
        };
        let end = begin + length + 2;
        let word = &text[begin + 2..end - 2];
        if let Some(number) = word.strip_prefix("<arm ") {
            let number: u32 = number.parse().map_err(|_| word.to_owned())?;
            open_arms.push((number, begin));
        } else if let Some(numbers) = word.strip_prefix("<site ") {
            let numbers: Vec<u32> = numbers
                .split(' ')
                .filter_map(|it| it.parse().ok())
                .collect();
            open_sites.push((numbers, begin));
        } else if word == "arm>" {
            let (number, begin) = open_arms.pop().ok_or("an arm ends twice")?;
            arms.push((number, begin, end));
        } else if word == "site>" {
            let (numbers, begin) = open_sites.pop().ok_or("a place ends twice")?;
            sites.push((numbers, begin, end));
        } else {
            // Another comment, or "/*" in a string.
            from = begin + 2;
            continue;
        }
        from = end;
    }
    Ok((arms, sites))
}

//! The language of metrics: a parser of AMD's expressions, and the rules of what may stand where.
//!
//! It is a subset of Python: numbers, names of counters and of a dispatch's fields, `NAME[3]` for
//! the counter of one L2 channel, `$name` for a property of the GPU or a shorthand, `+ - * /`, one
//! comparison, `X if condition else Y`, `None`, and functions ([`Function`]).

use std::fmt;

/// A parsed expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// A number.
    Number(f64),
    /// `None`: no value.
    None,
    /// A counter or a field of the dispatch, such as `SQ_WAVES` or `TCC_HIT[3]`.
    Name(String),
    /// `NAME[::_1]`: the counter of the channel that the row is about.
    Channel(String),
    /// `$name`, without the `$`.
    Variable(String),
    /// `-x`.
    Negative(Box<Expression>),
    /// An operation on two values.
    Both(Box<Expression>, Operator, Box<Expression>),
    /// A comparison.
    Compare(Box<Expression>, Comparison, Box<Expression>),
    /// `then if condition else otherwise`.
    If {
        /// The value where the condition holds.
        then: Box<Expression>,
        /// A comparison.
        condition: Box<Expression>,
        /// The value where it does not hold.
        otherwise: Box<Expression>,
    },
    /// A call.
    Call(Function, Vec<Expression>),
}

/// An operation on two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

/// The functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// The mean over the dispatches.
    Avg,
    /// With one argument the minimum over the dispatches, with two the lesser in each dispatch.
    Min,
    /// With one argument the maximum over the dispatches, with two the greater in each dispatch.
    Max,
    /// The sum over the dispatches.
    Sum,
    /// The median over the dispatches.
    Median,
    /// The standard deviation of a sample; 0 for one dispatch.
    Std,
    /// `QUANTILE(x, q)` over the dispatches, interpolated between two values.
    Quantile,
    /// The value without its fraction.
    ToInt,
    /// `ROUND(x, digits)`; halves go to the even neighbour.
    Round,
    /// The remainder of a division, with the sign of the divisor.
    Mod,
    /// `NOISE_CLAMP(difference, reference)`: a negative difference of two counters is 0.
    NoiseClamp,
}

impl Function {
    const NAMES: [(&'static str, Function); 11] = [
        ("AVG", Function::Avg),
        ("MIN", Function::Min),
        ("MAX", Function::Max),
        ("SUM", Function::Sum),
        ("MEDIAN", Function::Median),
        ("STD", Function::Std),
        ("QUANTILE", Function::Quantile),
        ("TO_INT", Function::ToInt),
        ("ROUND", Function::Round),
        ("MOD", Function::Mod),
        ("NOISE_CLAMP", Function::NoiseClamp),
    ];

    /// Returns the permitted numbers of arguments.
    fn takes(self) -> std::ops::RangeInclusive<usize> {
        match self {
            Function::Avg | Function::Sum | Function::Median | Function::Std => 1..=1,
            Function::ToInt => 1..=1,
            Function::Min | Function::Max => 1..=2,
            Function::Quantile | Function::Round | Function::Mod | Function::NoiseClamp => 2..=2,
        }
    }
}

/// Why a text is not an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The byte at which the text stops being an expression.
    pub at: usize,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at {})", self.what, self.at)
    }
}

impl std::error::Error for Malformed {}

/// Nesting beyond which an expression is refused, so that no text can exhaust the stack.
const DEPTH: usize = 500;

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// When the text is not an expression: what is wrong, and where.
    pub fn parse(text: &str) -> Result<Expression, Malformed> {
        let mut parser = Parser {
            text: text.as_bytes(),
            at: 0,
            depth: 0,
        };
        let expression = parser.conditional()?;
        match parser.peek() {
            None => Ok(expression),
            Some(_) => Err(parser.wrong("more than one expression")),
        }
    }
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

type Parsed = Result<Expression, Malformed>;

impl Parser<'_> {
    fn wrong(&self, what: &str) -> Malformed {
        Malformed {
            at: self.at,
            what: what.to_owned(),
        }
    }

    /// Returns the next byte that is not a space.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        self.peek();
        let found = self.text[self.at..].starts_with(word.as_bytes());
        if found {
            self.at += word.len();
        }
        found
    }

    fn need(&mut self, word: &str) -> Result<(), Malformed> {
        match self.take(word) {
            true => Ok(()),
            false => Err(self.wrong(&format!("`{word}` is missing"))),
        }
    }

    /// Consumes a whole word, such as `if`.
    fn keyword(&mut self, word: &str) -> bool {
        let before = self.at;
        if self.take(word) && !self.text.get(self.at).is_some_and(|b| is_of_name(*b)) {
            return true;
        }
        self.at = before;
        false
    }

    fn conditional(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.wrong("it is nested too deeply"));
        }
        let then = self.comparison()?;
        let expression = if self.keyword("if") {
            if matches!(then, Expression::Number(_) | Expression::None) {
                return Err(self.wrong("a bare number stands before `if`"));
            }
            let condition = self.comparison()?;
            if !matches!(condition, Expression::Compare(..)) {
                return Err(self.wrong("the condition is not a comparison"));
            }
            if !self.keyword("else") {
                return Err(self.wrong("`else` is missing"));
            }
            Expression::If {
                then: Box::new(then),
                condition: Box::new(condition),
                otherwise: Box::new(self.conditional()?),
            }
        } else {
            then
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn comparison(&mut self) -> Parsed {
        let left = self.sum()?;
        let Some(how) = self.compares() else {
            return Ok(left);
        };
        let right = self.sum()?;
        if self.compares().is_some() {
            return Err(self.wrong("comparisons are chained"));
        }
        Ok(Expression::Compare(Box::new(left), how, Box::new(right)))
    }

    fn compares(&mut self) -> Option<Comparison> {
        let all = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessEqual),
            (">=", Comparison::GreaterEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        all.into_iter()
            .find_map(|(word, how)| self.take(word).then_some(how))
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        loop {
            let how = match self.peek() {
                Some(b'+') => Operator::Add,
                Some(b'-') => Operator::Subtract,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expression::Both(Box::new(left), how, Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Parsed {
        let mut left = self.signed()?;
        loop {
            let how = match self.peek() {
                Some(b'*') => Operator::Multiply,
                Some(b'/') => Operator::Divide,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expression::Both(Box::new(left), how, Box::new(self.signed()?));
        }
    }

    fn signed(&mut self) -> Parsed {
        let mut negative = false;
        loop {
            match self.peek() {
                Some(b'-') => negative = !negative,
                Some(b'+') => {}
                _ => break,
            }
            self.at += 1;
        }
        let it = self.atom()?;
        Ok(match negative {
            true => Expression::Negative(Box::new(it)),
            false => it,
        })
    }

    fn atom(&mut self) -> Parsed {
        match self.peek() {
            Some(b'(') => {
                self.at += 1;
                let inner = self.conditional()?;
                self.need(")")?;
                // A comparison in brackets is a condition; a condition is not a value.
                Ok(inner)
            }
            Some(b'$') => {
                self.at += 1;
                Ok(Expression::Variable(self.name()?))
            }
            Some(b) if b.is_ascii_digit() || b == b'.' => self.number(),
            Some(b) if is_of_name(b) => self.named(),
            Some(_) => Err(self.wrong("a value is missing")),
            None => Err(self.wrong("unexpected end")),
        }
    }

    fn name(&mut self) -> Result<String, Malformed> {
        let start = self.at;
        while self.text.get(self.at).is_some_and(|b| is_of_name(*b)) {
            self.at += 1;
        }
        if start == self.at {
            return Err(self.wrong("a name is missing"));
        }
        Ok(String::from_utf8_lossy(&self.text[start..self.at]).into_owned())
    }

    fn number(&mut self) -> Parsed {
        let start = self.at;
        let mut exponent = false;
        while let Some(b) = self.text.get(self.at).copied() {
            let sign = matches!(b, b'+' | b'-') && exponent;
            exponent = matches!(b, b'e' | b'E');
            if !(b.is_ascii_digit() || b == b'.' || exponent || sign) {
                break;
            }
            self.at += 1;
        }
        let text = String::from_utf8_lossy(&self.text[start..self.at]);
        match text.parse() {
            Ok(number) => Ok(Expression::Number(number)),
            Err(_) => Err(self.wrong("the number is malformed")),
        }
    }

    fn named(&mut self) -> Parsed {
        let name = self.name()?;
        if name == "None" {
            return Ok(Expression::None);
        }
        match self.text.get(self.at) {
            Some(b'(') => self.call(&name),
            Some(b'[') => {
                self.at += 1;
                if self.take("::_1") {
                    self.need("]")?;
                    return Ok(Expression::Channel(name));
                }
                let start = self.at;
                while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
                    self.at += 1;
                }
                let number = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
                if number.is_empty() {
                    return Err(self.wrong("the number of a channel is missing"));
                }
                self.need("]")?;
                Ok(Expression::Name(format!("{name}[{number}]")))
            }
            _ => Ok(Expression::Name(name)),
        }
    }

    fn call(&mut self, name: &str) -> Parsed {
        let known = Function::NAMES
            .into_iter()
            .find(|(known, _)| *known == name);
        let Some((_, function)) = known else {
            return Err(self.wrong(&format!("unknown function {name}")));
        };
        self.need("(")?;
        let mut values = Vec::new();
        loop {
            values.push(self.conditional()?);
            if !self.take(",") {
                break;
            }
        }
        self.need(")")?;
        if !function.takes().contains(&values.len()) {
            return Err(self.wrong(&format!("{name} does not take {} values", values.len())));
        }
        Ok(Expression::Call(function, values))
    }
}

fn is_of_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_bind_as_in_python() {
        let two = |a, how, b| Expression::Both(Box::new(a), how, Box::new(b));
        let n = Expression::Number;
        assert_eq!(
            Expression::parse("1 - 2 * -3").unwrap(),
            two(
                n(1.0),
                Operator::Subtract,
                two(
                    n(2.0),
                    Operator::Multiply,
                    Expression::Negative(Box::new(n(3.0)))
                )
            )
        );
        assert_eq!(
            Expression::parse("8/4/2").unwrap(),
            two(
                two(n(8.0), Operator::Divide, n(4.0)),
                Operator::Divide,
                n(2.0)
            )
        );
        assert_eq!(Expression::parse(" 1e-9 ").unwrap(), n(1e-9));
        assert_eq!(
            Expression::parse("TCC_HIT[12]").unwrap(),
            Expression::Name("TCC_HIT[12]".into())
        );
        assert_eq!(
            Expression::parse("TCC_HIT[::_1]").unwrap(),
            Expression::Channel("TCC_HIT".into())
        );
    }

    #[test]
    fn what_is_no_expression_is_refused_at_its_place() {
        for (text, what) in [
            ("", "unexpected end"),
            ("AVG(", "unexpected end"),
            ("AVG(a, b)", "AVG does not take 2 values"),
            ("EXEC(a)", "unknown function EXEC"),
            ("a b", "more than one expression"),
            ("1 if a != 0 else 2", "a bare number stands before `if`"),
            ("a if b else 2", "the condition is not a comparison"),
            ("a if b != 0", "`else` is missing"),
            ("a < b < c", "comparisons are chained"),
            ("TCC_HIT[x]", "the number of a channel is missing"),
            ("1.2.3", "the number is malformed"),
            ("(a", "`)` is missing"),
            ("a; b", "more than one expression"),
            ("'a'", "a value is missing"),
        ] {
            assert_eq!(Expression::parse(text).unwrap_err().what, what, "{text}");
        }
        let deep = "(".repeat(100_000);
        assert_eq!(
            Expression::parse(&deep).unwrap_err().what,
            "it is nested too deeply"
        );
    }
}

//! What a session asks for.

/// Who takes the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The driver interrupts all waves at an interval.
    HostTrap,
    /// The device looks at one wave after the other.
    Stochastic,
}

/// What the interval counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Time,
    /// Cycles of the device's clock.
    Cycles,
    /// Instructions.
    Instructions,
}

/// What a session asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Who takes the samples.
    pub method: Method,
    /// What the interval counts.
    pub unit: Unit,
    /// The interval.
    pub interval: u64,
}

impl Request {
    /// Reads the words of the settings; `None` if they name no method, unit or interval.
    pub fn of(method: &str, unit: &str, interval: &str) -> Option<Request> {
        Some(Request {
            method: match method {
                "host_trap" => Method::HostTrap,
                "stochastic" => Method::Stochastic,
                _ => return None,
            },
            unit: match unit {
                "time" => Unit::Time,
                "cycles" => Unit::Cycles,
                "instructions" => Unit::Instructions,
                _ => return None,
            },
            interval: interval.parse().ok().filter(|interval| *interval > 0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_request_only_if_all_are_known() {
        let request = Request::of("stochastic", "cycles", "1048576");
        assert_eq!(
            request,
            Some(Request {
                method: Method::Stochastic,
                unit: Unit::Cycles,
                interval: 1 << 20,
            })
        );
        for (method, unit, interval) in [
            ("", "cycles", "1"),
            ("host_trap", "ms", "1"),
            ("host_trap", "time", "0"),
            ("host_trap", "time", "x"),
        ] {
            assert_eq!(Request::of(method, unit, interval), None);
        }
    }
}

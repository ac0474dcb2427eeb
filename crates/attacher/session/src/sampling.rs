//! Whether and how GPUs sample program counters, as their driver says.

use midair_ptrace::kfd::{Kfd, Offer, SAMPLES_SINCE};

/// `EBUSY` on Linux.
const EBUSY: i32 = 16;

/// How a GPU samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampling {
    /// The ways that it offers.
    pub ways: Vec<Way>,
    /// The one that another process uses now.
    pub in_force: Option<(Way, u64)>,
}

/// A way to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The word for `--pc-sampling-method`.
    pub method: &'static str,
    /// The word for `--pc-sampling-unit`.
    pub unit: &'static str,
    /// The shortest interval.
    pub least: u64,
    /// The longest one.
    pub most: u64,
    /// Whether it is a power of two.
    pub is_power_of_two: bool,
}

impl Way {
    /// Returns None for a way that midair has no word for.
    fn of(offer: &Offer) -> Option<Way> {
        let method = match offer.method {
            1 => "host_trap",
            2 => "stochastic",
            _ => return None,
        };
        let unit = match offer.unit {
            0 => "time",
            1 => "cycles",
            2 => "instructions",
            _ => return None,
        };
        Some(Way {
            method,
            unit,
            least: offer.least,
            most: offer.most,
            is_power_of_two: offer.flags & 1 != 0,
        })
    }

    /// Returns it as `stochastic (256 to 2147483648 cycles, powers of two)`.
    pub fn in_words(&self) -> String {
        let unit = match self.unit {
            "time" => "us",
            unit => unit,
        };
        let power = match self.is_power_of_two {
            true => ", powers of two",
            false => "",
        };
        let Way { method, least, .. } = self;
        match self.most {
            // No limit that a user would reach.
            most if most >= u64::from(u32::MAX) => {
                format!("{method} ({least} {unit} and more{power})")
            }
            most => format!("{method} ({least} to {most} {unit}{power})"),
        }
    }
}

/// Asks the driver how it samples the GPU with this id.
///
/// # Errors
/// Why it does not, in words.
pub fn sampling(gpu_id: u64) -> Result<Sampling, String> {
    let device = Kfd::open().map_err(|error| format!("cannot open /dev/kfd: {error}"))?;
    let version = device.version();
    let version = version.map_err(|error| format!("the driver has no version: {error}"))?;
    if version < SAMPLES_SINCE {
        let ((major, minor), (_, least)) = (version, SAMPLES_SINCE);
        return Err(format!(
            "the driver's interface is {major}.{minor}, and 1.{least} or newer required (amdgpu-dkms of ROCm 6.4)"
        ));
    }
    let gpu_id = u32::try_from(gpu_id).unwrap_or(0);
    let asked = |in_force| {
        device
            .samples(gpu_id, in_force)
            .map_err(|error| match error.raw_os_error() {
                Some(EBUSY) => "a debugger is attached".to_owned(),
                _ => format!("the driver does not offer it for this GPU ({error})"),
            })
    };
    let ways: Vec<Way> = asked(false)?.iter().filter_map(Way::of).collect();
    if ways.is_empty() {
        return Err("the driver offers nothing for this GPU".to_owned());
    }
    let now = asked(true).unwrap_or_default();
    let in_force = now.iter().find(|offer| offer.interval != 0);
    Ok(Sampling {
        ways,
        in_force: in_force.and_then(|offer| Some((Way::of(offer)?, offer.interval))),
    })
}

/// Returns how a GPU samples, in words.
///
/// # Errors
/// Why it cannot be asked to, in words.
pub(crate) fn described(found: &Result<Sampling, String>) -> Result<String, String> {
    match found {
        Err(why) => Err(format!("no program counters: {why}")),
        Ok(Sampling {
            in_force: Some((way, interval)),
            ..
        }) => Err(format!(
            "another process samples by {} with an interval of {interval} {}: ask for the same, or wait",
            way.method, way.unit
        )),
        Ok(Sampling { ways, .. }) => {
            let ways: Vec<String> = ways.iter().map(Way::in_words).collect();
            Ok(ways.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_in_words() {
        let offer = |method, unit, least, most, flags| Offer {
            interval: 0,
            least,
            most,
            flags,
            method,
            unit,
        };
        let words = |offer| Way::of(&offer).map(|way| way.in_words());
        let trap = offer(1, 0, 1, u64::from(u32::MAX), 0);
        assert_eq!(words(trap).unwrap(), "host_trap (1 us and more)");
        let own = offer(2, 1, 256, 1 << 31, 1);
        let wanted = "stochastic (256 to 2147483648 cycles, powers of two)";
        assert_eq!(words(own).unwrap(), wanted);
        assert_eq!(words(offer(3, 0, 1, 2, 0)), None);
        assert_eq!(words(offer(1, 9, 1, 2, 0)), None);
    }

    #[test]
    fn a_gpu_that_is_sampled_differs_from_one_that_can_be() {
        let way = Way {
            method: "host_trap",
            unit: "time",
            least: 1,
            most: 1000,
            is_power_of_two: false,
        };
        let mut offered = Sampling {
            ways: vec![way],
            in_force: None,
        };
        let can = described(&Ok(offered.clone()));
        assert_eq!(can, Ok("host_trap (1 to 1000 us)".to_owned()));
        offered.in_force = Some((way, 50));
        let used = described(&Ok(offered)).unwrap_err();
        assert!(used.contains("an interval of 50 time"), "{used}");
        let none = described(&Err("why".to_owned())).unwrap_err();
        assert_eq!(none, "no program counters: why");
    }
}

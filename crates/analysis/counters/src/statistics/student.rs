//! Quantiles of Student's distribution.

/// The normal distribution's two-sided 95 % quantile.
const Z: f64 = 1.959_963_984_540_054;

/// Returns the two-sided 95 % quantile for this many degrees of freedom, at least one; within 0.2
/// %.
///
/// Source: Fisher's expansion in 1/n (Fisher and Cornish, The Percentile Points of Distributions
/// Having Known Cumulants, Technometrics 2, 1960), which is good from 3 on.
pub fn quantile(degrees: f64) -> f64 {
    if degrees < 2.0 {
        return 12.706_204_736_432_1;
    }
    if degrees < 3.0 {
        return 4.302_652_729_911_3;
    }
    let z = |power: i32| Z.powi(power);
    let terms = [
        (z(3) + Z) / 4.0,
        (5.0 * z(5) + 16.0 * z(3) + 3.0 * Z) / 96.0,
        (3.0 * z(7) + 19.0 * z(5) + 17.0 * z(3) - 15.0 * Z) / 384.0,
        (79.0 * z(9) + 776.0 * z(7) + 1482.0 * z(5) - 1920.0 * z(3) - 945.0 * Z) / 92_160.0,
    ];
    let sum = terms.iter().rev().fold(0.0, |sum, t| (sum + t) / degrees);
    Z + sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let table = [
            (1.0, 12.706),
            (2.0, 4.303),
            (3.0, 3.182),
            (4.0, 2.776),
            (5.0, 2.571),
            (7.0, 2.365),
            (10.0, 2.228),
            (30.0, 2.042),
            (120.0, 1.980),
            (1e9, 1.960),
        ];
        for (degrees, expected) in table {
            let off = (quantile(degrees) - expected).abs() / expected;
            assert!(off < 0.002, "{degrees}: {}", quantile(degrees));
        }
        assert!(quantile(2.5) > quantile(3.0), "on the safe side between");
    }
}

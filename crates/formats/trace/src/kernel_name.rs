//! Names of kernels: from the code object's symbol to the form that people read.

use crate::limits::{self, Budget};
use midair_demangle::{demangle, demangle_by, truncate};

/// How kernels are named (rocprofv3's `-M` and `-T`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelNames {
    /// With template arguments and parameters.
    #[default]
    Demangled,
    /// The bare name.
    Truncated,
    /// As in the code object.
    Mangled,
}

impl KernelNames {
    /// Returns the form that these settings choose. Names are demangled unless that is off.
    pub fn chosen(demangles: Option<bool>, truncates: bool) -> KernelNames {
        match (demangles, truncates) {
            (Some(false), _) => KernelNames::Mangled,
            (_, true) => KernelNames::Truncated,
            _ => KernelNames::Demangled,
        }
    }
}

/// The name that stands for all kernels whose symbols were never seen, where they are summed up.
pub const UNSEEN_KERNEL: &str = "(kernel whose name was not seen)";

/// The three spellings that json has besides the symbol itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spellings {
    /// What the user asked for.
    pub formatted: String,
    /// Demangled with the descriptor's suffix, as AMD has it ("f(int) [clone .kd]").
    pub demangled: String,
    /// Without template arguments and parameters.
    pub truncated: String,
}

/// Returns the spellings of a symbol, which is bytes of the target and may be anything.
pub fn spellings(symbol: &[u8], names: KernelNames) -> Spellings {
    let symbol = limits::text(symbol);
    let demangled = demangle(&symbol);
    let truncated = truncate(&demangled).to_owned();
    Spellings {
        formatted: formatted(&symbol, names),
        demangled,
        truncated,
    }
}

/// Returns a symbol that is not demangled, the same in all three spellings.
pub fn unchanged(symbol: &[u8]) -> Spellings {
    let symbol = limits::text(symbol).into_owned();
    Spellings {
        formatted: bare(&symbol).to_owned(),
        demangled: symbol.clone(),
        truncated: symbol,
    }
}

/// Returns the symbol without the suffix of a kernel's descriptor.
fn bare(symbol: &str) -> &str {
    symbol.strip_suffix(".kd").unwrap_or(symbol)
}

/// Names the kernels of one process in the form that the user asked for, until the names together
/// take too much ([`limits::DEMANGLED`]): a short symbol may have a long name.
pub struct Namer {
    names: KernelNames,
    given: Budget<{ limits::DEMANGLED }>,
    is_over: bool,
}

impl Namer {
    /// Makes one that has named nothing yet.
    pub fn new(names: KernelNames) -> Namer {
        Namer {
            names,
            given: Budget::default(),
            is_over: false,
        }
    }

    /// Returns the name of a symbol, or None when no more may be given. The whole name counts even
    /// where the user wants it truncated, since it can be a hundred times as long as the symbol.
    pub fn name(&mut self, symbol: &[u8]) -> Option<String> {
        if self.is_over {
            return None;
        }
        let (name, work) = formatted_by(&limits::text(symbol), self.names);
        self.is_over = !self.given.take(symbol.len() + work);
        Some(name)
    }

    /// Returns the name of a symbol, or else the symbol.
    pub fn name_or_symbol(&mut self, symbol: &[u8]) -> String {
        self.name(symbol)
            .unwrap_or_else(|| bare(&limits::text(symbol)).to_owned())
    }
}

/// Returns the name in the form that the user asked for.
pub fn formatted(symbol: &str, names: KernelNames) -> String {
    formatted_by(symbol, names).0
}

/// Returns the name in the form that the user asked for, and how many bytes were written to make
/// it.
fn formatted_by(symbol: &str, names: KernelNames) -> (String, usize) {
    let bare = bare(symbol);
    if names == KernelNames::Mangled {
        return (bare.to_owned(), 0);
    }
    let (whole, work) = demangle_by(bare);
    let name = match names {
        KernelNames::Truncated => truncate(&whole).to_owned(),
        _ => whole,
    };
    (name, work)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected spellings come from the golden json.
    #[test]
    fn spellings_are_amds() {
        let spell = |symbol: &str| spellings(symbol.as_bytes(), KernelNames::Demangled);
        let scale = spell("_Z5scalePffi.kd");
        assert_eq!(scale.formatted, "scale(float*, float, int)");
        assert_eq!(scale.demangled, "scale(float*, float, int) [clone .kd]");
        assert_eq!(scale.truncated, "scale");
        let fill = spell("__amd_rocclr_fillBufferAligned.kd");
        assert_eq!(fill.formatted, "__amd_rocclr_fillBufferAligned");
        assert_eq!(fill.demangled, "__amd_rocclr_fillBufferAligned.kd");
        assert_eq!(fill.truncated, "__amd_rocclr_fillBufferAligned.kd");
    }

    #[test]
    fn options_choose_the_spelling() {
        let symbol = "_ZN2ns3fooIiLi3EEEvPT_.kd";
        assert_eq!(
            formatted(symbol, KernelNames::Mangled),
            "_ZN2ns3fooIiLi3EEEvPT_"
        );
        assert_eq!(
            formatted(symbol, KernelNames::Demangled),
            "void ns::foo<int, 3>(int*)"
        );
        assert_eq!(formatted(symbol, KernelNames::Truncated), "foo");
    }

    /// The kernel behind PyTorch's `randn`, whose name is as long as c++filt's: nothing is cut.
    #[test]
    fn long_names_are_whole() {
        let symbol = "_ZN2at6native12_GLOBAL__N_143distribution_elementwise_grid_stride_kernel\
            IfLi4EZNS0_9templates4cuda20normal_and_transformIffPNS_17CUDAGeneratorImplE\
            ZZZNS4_13normal_kernelIS7_EEvRKNS_10TensorBaseEddT_ENKUlvE_clEvENKUlvE0_clEvEUlfE_EEv\
            RNS_18TensorIteratorBaseET1_T2_EUlP24curandStatePhilox4_32_10E_\
            ZNS1_27distribution_nullary_kernelIff6float4S7_SM_SF_EEvSH_SJ_RKT3_T4_EUlifE_EEv\
            lNS_15PhiloxCudaStateET1_T2_";
        for names in [KernelNames::Demangled, KernelNames::Truncated] {
            let spelled = spellings(symbol.as_bytes(), names);
            assert_eq!(spelled.demangled.len(), 5050);
            assert!(spelled.demangled.ends_with("{lambda(int, float)#1})"));
            assert_eq!(
                spelled.truncated,
                "distribution_elementwise_grid_stride_kernel"
            );
        }
        assert_eq!(formatted(symbol, KernelNames::Demangled).len(), 5050);
    }

    #[test]
    fn odd_names_stay_themselves() {
        for name in [
            "",
            "(",
            ")",
            "<>",
            "a(b",
            "Cijk_Ailk_Bljk_S_B_Bias_HA",
            "void (*)(int)",
        ] {
            assert!(!truncate(name).is_empty() || name.is_empty(), "{name:?}");
        }
        assert_eq!(truncate("f(int (*)(long, char))"), "f");
        assert_eq!(truncate("void k<(E)1, a::b<c> >(x<y>)"), "k");
        let lossy = spellings(b"\xff\xfe.kd", KernelNames::Demangled);
        assert_eq!(lossy.formatted, "\u{fffd}\u{fffd}");
    }
}

//! Classes of kernels, so that a monitor has few rows: by words that libraries use in kernels' names.

/// The class of all others.
pub(crate) const OTHER: &str = "other";

/// The classes, each with its words. The first that matches counts.
const CLASSES: [(&str, &[&str]); 8] = [
    (
        "collective",
        &["nccl", "rccl", "allreduce", "all_reduce", "allgather"],
    ),
    ("attention", &["attention", "attn", "flash", "fmha"]),
    (
        "gemm",
        &[
            "gemm", "cijk_", "matmul", "cublas", "cutlass", "gemv", "splitk",
        ],
    ),
    ("convolution", &["conv", "winograd", "miopen", "cudnn"]),
    ("normalization", &["norm", "softmax"]),
    (
        "memory",
        &[
            "copy",
            "fill",
            "memset",
            "gather",
            "scatter",
            "transpose",
            "index",
            "embedding",
        ],
    ),
    ("reduction", &["reduce", "reduction", "sort", "scan"]),
    (
        "elementwise",
        &[
            "elementwise",
            "vectorized",
            "pointwise",
            "relu",
            "gelu",
            "silu",
        ],
    ),
];
/// The most bytes of a name that are read. The words stand near the start.
const MOST: usize = 1024;

/// Returns the class of a kernel by its name in the code object.
pub(crate) fn of(symbol: &[u8]) -> &'static str {
    let symbol = symbol.get(..MOST).unwrap_or(symbol).to_ascii_lowercase();
    let has = |word: &&str| {
        symbol
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    };
    let mut classes = CLASSES.iter();
    let found = classes.find(|(_, words)| words.iter().any(&has));
    found.map_or(OTHER, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_libraries_have_their_class() {
        for (name, wanted) in [
            ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32", "gemm"),
            ("_Z4gemmILi128ELi64EEvPKfS1_Pfiii", "gemm"),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective"),
            ("_ZN5flash12flash_fwd_kernel", "attention"),
            (
                "_ZN2at6native27vectorized_elementwise_kernelILi4E",
                "elementwise",
            ),
            ("_ZN2at6native13reduce_kernelILi512E", "reduction"),
            ("_ZN2nn9layerNormEPKfPfS2_if", "normalization"),
            ("__amd_rocclr_fillBufferAligned", "memory"),
            ("miopenSp3AsmConv_v30_3_1", "convolution"),
            ("sgd_step", OTHER),
            ("", OTHER),
        ] {
            assert_eq!(of(name.as_bytes()), wanted, "{name}");
        }
        assert_eq!(of(&[0xff; 5000]), OTHER);
    }
}

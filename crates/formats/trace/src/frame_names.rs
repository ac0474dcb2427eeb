//! Names of frames that people know: PyTorch's operators and backward nodes, XLA's thunks and Cython's
//! functions instead of the C++ functions that stand for them; and frames that say nothing, because
//! they are a dispatcher's or a runtime's.
//!
//! Each rule is about names that a generator writes by a fixed pattern: torchgen's `at::_ops`, the
//! classes of `torch::autograd::generated`, and Cython's `__pyx_`. A name without a rule stays as it is.

/// Which frames of stacks flame graphs have (`--stacks-by`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Frames {
    /// All.
    #[default]
    All,
    /// None of dispatchers and runtimes.
    Operators,
    /// PyTorch's modules only.
    Modules,
    /// None: only kernels and copies.
    None,
}

impl Frames {
    /// Returns the frames for a word of the option.
    pub fn of(word: Option<&str>) -> Frames {
        match word {
            Some("operator") => Frames::Operators,
            Some("module") => Frames::Modules,
            Some("kernel") => Frames::None,
            _ => Frames::All,
        }
    }

    /// Returns its word.
    pub fn text(self) -> &'static str {
        match self {
            Frames::All => "frame",
            Frames::Operators => "operator",
            Frames::Modules => "module",
            Frames::None => "kernel",
        }
    }
}

/// The part of a frame in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// A Python function.
    Python,
    /// A compiled function.
    Native,
    /// An operator of a framework, or its node in the backward pass.
    Operator,
    /// A call of a module of PyTorch's.
    Module,
    /// A function of a framework's dispatcher, a runtime or the interpreter.
    Inner,
    /// A line or an instruction of a kernel that was sampled.
    Sampled,
}

impl Part {
    /// Returns its word in the page.
    pub fn text(self) -> &'static str {
        match self {
            Part::Python => "python",
            Part::Native => "native",
            Part::Operator => "operator",
            Part::Module => "module",
            Part::Inner => "inner",
            Part::Sampled => "sampled",
        }
    }

    /// Whether these frames have it.
    pub fn is_in(self, frames: Frames) -> bool {
        match frames {
            Frames::All => true,
            Frames::Operators => self != Part::Inner,
            Frames::Modules => self == Part::Module,
            Frames::None => false,
        }
    }

    /// Returns the part of a frame that has its final name already.
    pub fn of(file: &str, name: &str) -> Part {
        if name.starts_with("aten::") {
            return Part::Operator;
        }
        match python(file, name) {
            Part::Python if !file.ends_with(".py") => native(file, name).1,
            part => part,
        }
    }
}

/// The starts of the names of libraries whose functions say nothing about the program.
const INNER: [&str; 20] = [
    "libtorch.so",
    "libtorch_cpu.so",
    "libtorch_cuda",
    "libtorch_hip.so",
    "libtorch_python.so",
    "libc10",
    "libcudart",
    "libcuda.so",
    "libamdhip64.so",
    "libhsa-runtime64.so",
    "libroctracer64.so",
    "libpython",
    "libtriton.so",
    "__triton_launcher",
    "xla_extension.so",
    "libjax_common.so",
    "xla_cuda_plugin.so",
    "xla_rocm_plugin.so",
    "_ctypes.",
    "libffi.so",
];

/// Parts of the paths of Python files between a user's code and an operator.
const INNER_PYTHON: [&str; 9] = [
    "/torch/_dynamo/",
    "/torch/_ops.py",
    "/torch/_functorch/",
    "/torch/_inductor/",
    "/torch/utils/_contextlib.py",
    "/triton/runtime/",
    "/triton/backends/",
    "/jax/_src/",
    "/numba/cuda/",
];

/// Operators whose overload is not recognized by its first letter, as torchgen joins both by
/// `_`: `sum.dim_IntList` is `sum_dim_IntList`.
const OVERLOADS: [(&str, &str); 22] = [
    ("all_dim", "all"),
    ("any_dim", "any"),
    ("arange_start", "arange"),
    ("arange_start_step", "arange"),
    ("argsort_stable", "argsort"),
    ("empty_memory_format", "empty"),
    ("log_softmax_int", "log_softmax"),
    ("max_dim", "max"),
    ("mean_dim", "mean"),
    ("min_dim", "min"),
    ("select_int", "select"),
    ("softmax_int", "softmax"),
    ("sort_stable", "sort"),
    ("squeeze_dim", "squeeze"),
    ("std_correction", "std"),
    ("sum_dim", "sum"),
    ("to_device", "to"),
    ("to_dtype", "to"),
    ("to_dtype_layout", "to"),
    ("transpose_int", "transpose"),
    ("unbind_int", "unbind"),
    ("var_correction", "var"),
];

/// Returns the name and the part of a compiled function, from its file and its demangled name.
pub fn native(file: &str, name: &str) -> (String, Part) {
    let operator = operator(name)
        .or_else(|| node(name))
        .or_else(|| thunk(name));
    if let Some(operator) = operator {
        return (operator, Part::Operator);
    }
    let cython = cython(name);
    let file = file.rsplit('/').next().unwrap_or_default();
    let is_interpreter = file
        .strip_prefix("python")
        .is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()));
    let is_inner =
        cython.is_none() && (is_interpreter || INNER.iter().any(|start| file.starts_with(start)));
    let part = if is_inner { Part::Inner } else { Part::Native };
    (cython.unwrap_or_else(|| name.to_owned()), part)
}

/// Returns the part of a Python function.
pub fn python(file: &str, name: &str) -> Part {
    let of_module = is_module_call(file, name);
    if of_module || INNER_PYTHON.iter().any(|part| file.contains(part)) {
        return Part::Inner;
    }
    Part::Python
}

/// Whether a Python function is the one by which PyTorch calls a module, or the one around it.
pub fn is_module_call(file: &str, name: &str) -> bool {
    let name = name.rsplit('.').next().unwrap_or_default();
    file.ends_with("/torch/nn/modules/module.py")
        && matches!(name, "_call_impl" | "_wrapped_call_impl")
}

/// Returns `aten::addmm` of `at::_ops::addmm::call(…)` and `redispatch`.
fn operator(name: &str) -> Option<String> {
    let (operator, method) = name.strip_prefix("at::_ops::")?.split_once("::")?;
    let is_call = method.starts_with("call(") || method.starts_with("redispatch(");
    (is_call && is_identifier(operator)).then(|| format!("aten::{}", without_overload(operator)))
}

/// Returns an operator's name without its overload's.
fn without_overload(operator: &str) -> &str {
    // Overloads have names such as `Tensor`, operators do not, except these.
    if operator.starts_with("_cast_") {
        return operator;
    }
    let bytes = operator.as_bytes();
    let first = bytes.windows(2).skip(1).position(|pair| {
        pair.first() == Some(&b'_') && pair.iter().skip(1).all(u8::is_ascii_uppercase)
    });
    let end = first.map_or(operator.len(), |at| at + 1);
    let name = operator.get(..end).unwrap_or(operator);
    let name = name.strip_suffix("_out").unwrap_or(name);
    let known = OVERLOADS.iter().find(|(joined, _)| *joined == name);
    known.map_or(name, |(_, operator)| operator)
}

/// Returns `MmBackward0` of `torch::autograd::generated::MmBackward0::apply(…)`.
fn node(name: &str) -> Option<String> {
    let rest = name.strip_prefix("torch::autograd::")?;
    let rest = rest.strip_prefix("generated::").unwrap_or(rest);
    // A function that is written in C++ has its class as the argument of a template.
    if let Some(custom) = rest.strip_prefix("CppNode<") {
        let (class, _) = custom.split_once(">::apply(")?;
        return Some(class.to_owned());
    }
    let (class, method) = rest.split_once("::")?;
    let is_call = method.starts_with("apply(") || method.starts_with("apply_with_saved(");
    (is_call && is_identifier(class)).then(|| class.to_owned())
}

/// Returns `GemmThunk` of `xla::gpu::GemmThunk::ExecuteOnStream(…)`.
fn thunk(name: &str) -> Option<String> {
    let (class, method) = name.strip_prefix("xla::gpu::")?.split_once("::")?;
    let is_call = method.starts_with("ExecuteOnStream(");
    (is_call && class.ends_with("Thunk") && is_identifier(class)).then(|| class.to_owned())
}

/// Returns `cupy._core.core.ndarray.fill` of a Cython function's symbol: after the kind of the function,
/// each part of its module's path follows its length, and then the function's own name, before which
/// some kinds have a number.
fn cython(symbol: &str) -> Option<String> {
    let rest = symbol.strip_prefix("__pyx_")?;
    let (kind, mut rest) = rest.split_once('_')?;
    if !matches!(kind, "f" | "pf" | "pw") {
        return None;
    }
    let mut path: Vec<&str> = Vec::new();
    while let Some((part, more)) = counted(rest) {
        path.push(part);
        rest = more;
    }
    if kind != "f" {
        rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
    }
    if path.is_empty() || !is_identifier(rest) {
        return None;
    }
    path.push(rest);
    Some(path.join("."))
}

/// Returns the part at the start of `4core_…`, and what is behind it.
fn counted(text: &str) -> Option<(&str, &str)> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (len, rest) = text.split_at_checked(digits)?;
    let (part, rest) = rest.split_at_checked(len.parse().ok()?)?;
    let rest = rest.strip_prefix('_')?;
    (is_identifier(part) && !rest.is_empty()).then_some((part, rest))
}

fn is_identifier(text: &str) -> bool {
    let is_first = |first: char| first.is_ascii_alphabetic() || first == '_';
    text.starts_with(is_first)
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_demangle::demangle_host;

    const TORCH: &str = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so";

    fn named(symbol: &str) -> (String, Part) {
        native(TORCH, &demangle_host(symbol))
    }

    #[test]
    fn functions_of_operators_have_the_operators_names() {
        for (symbol, name) in [
            (
                "_ZN2at4_ops5addmm4callERKNS_6TensorES4_S4_RKN3c106ScalarES7_",
                "aten::addmm",
            ),
            (
                "_ZN2at4_ops5addmm10redispatchEN3c1014DispatchKeySetERKNS_6TensorES6_S6_RKNS2_6ScalarES9_",
                "aten::addmm",
            ),
            (
                "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE",
                "aten::add",
            ),
            (
                "_ZN2at4_ops11add__Tensor10redispatchEN3c1014DispatchKeySetERNS_6TensorERKS4_RKNS2_6ScalarE",
                "aten::add_",
            ),
            ("_ZN2at4_ops6mm_out4callERKNS_6TensorES4_RS2_", "aten::mm"),
            (
                "_ZN2at4_ops8_softmax10redispatchEN3c1014DispatchKeySetERKNS_6TensorElb",
                "aten::_softmax",
            ),
            (
                "_ZN2at4_ops15sum_dim_IntList4callERKNS_6TensorEN3c1016OptionalArrayRefIlEEbSt8optionalINS5_10ScalarTypeEE",
                "aten::sum",
            ),
            (
                "_ZN2at4_ops28scaled_dot_product_attention4callERKNS_6TensorES4_S4_RKSt8optionalIS2_EdbS5_IdEb",
                "aten::scaled_dot_product_attention",
            ),
            (
                "_ZN5torch8autograd9generated11MmBackward05applyEOSt6vectorIN2at6TensorESaIS4_EE",
                "MmBackward0",
            ),
            (
                "_ZN5torch8autograd14AccumulateGrad5applyEOSt6vectorIN2at6TensorESaIS3_EE",
                "AccumulateGrad",
            ),
            (
                "_ZN5torch8autograd7CppNodeIN3app6SquareEE5applyEOSt6vectorIN2at6TensorESaIS6_EE",
                "app::Square",
            ),
        ] {
            assert_eq!(named(symbol), (name.to_owned(), Part::Operator), "{symbol}");
        }
    }

    #[test]
    fn other_functions_keep_their_names_and_those_of_dispatchers_are_inner_ones() {
        for (symbol, wanted) in [
            (
                "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE",
                "torch::autograd::Engine::evaluate_function(",
            ),
            (
                "_ZN3c1010Dispatcher9singletonEv",
                "c10::Dispatcher::singleton()",
            ),
            ("_ZN2at4_ops5addmm6schemaEv", "at::_ops::addmm::schema()"),
        ] {
            let (name, part) = named(symbol);
            assert!(name.starts_with(wanted), "{name}");
            assert_eq!(part, Part::Inner, "{name}");
        }
        let own = native("/srv/app/server", "app::step(int)");
        assert_eq!(own, ("app::step(int)".to_owned(), Part::Native));
        for file in [
            "/venv/bin/python3.12",
            "/opt/python/lib/libpython3.13.so.1.0",
        ] {
            assert_eq!(native(file, "_PyEval_Vector").1, Part::Inner);
        }
        assert_eq!(native("/srv/python_server", "work").1, Part::Native);
        assert_eq!(
            native("/usr/lib/librocblas.so.4", "rocblas_sgemm").1,
            Part::Native
        );
    }

    #[test]
    fn an_operator_that_has_an_uppercase_letter_stays_whole() {
        assert_eq!(without_overload("_cast_Byte"), "_cast_Byte");
        assert_eq!(without_overload("bitwise_and__Scalar"), "bitwise_and_");
        assert_eq!(without_overload("native_dropout"), "native_dropout");
        assert_eq!(without_overload("mul_Tensor"), "mul");
        assert_eq!(
            without_overload("_foreach_add__ScalarList"),
            "_foreach_add_"
        );
        assert_eq!(without_overload("max_dim_max"), "max_dim_max");
        assert_eq!(without_overload("index_select"), "index_select");
    }

    #[test]
    fn functions_of_cython_and_xla_have_their_own_names() {
        let cupy =
            "/venv/lib/python3.12/site-packages/cupy/_core/core.cpython-312-x86_64-linux-gnu.so";
        let of = |symbol| native(cupy, &demangle_host(symbol)).0;
        assert_eq!(
            of("__pyx_f_4cupy_5_core_4core_elementwise_copy"),
            "cupy._core.core.elementwise_copy"
        );
        assert_eq!(
            of("__pyx_pw_4cupy_5_core_4core_13_ndarray_base_91fill"),
            "cupy._core.core._ndarray_base.fill"
        );
        assert_eq!(
            of("__pyx_pf_4cupy_5_core_4core_13_ndarray_base_3__init__"),
            "cupy._core.core._ndarray_base.__init__"
        );
        for other in [
            "__pyx_pymod_exec_core",
            "__pyx_f_",
            "__pyx_f_4cupy",
            "__pyx_t_4cupy_x",
        ] {
            assert_eq!(of(other), other);
        }
        let thunk = "_ZN3xla3gpu11KernelThunk15ExecuteOnStreamERKNS0_5Thunk13ExecuteParamsE";
        let wanted = ("KernelThunk".to_owned(), Part::Operator);
        assert_eq!(native("xla_cuda_plugin.so", &demangle_host(thunk)), wanted);
    }

    #[test]
    fn python_between_a_program_and_an_operator_is_inner() {
        let of =
            |file: &str, name| python(&format!("/venv/lib/python3.12/site-packages{file}"), name);
        assert_eq!(
            of("/torch/nn/modules/module.py", "Module._call_impl"),
            Part::Inner
        );
        assert_eq!(of("/torch/nn/modules/module.py", "Module.to"), Part::Python);
        assert_eq!(
            of("/torch/nn/modules/linear.py", "Linear.forward"),
            Part::Python
        );
        assert_eq!(of("/jax/_src/pjit.py", "call"), Part::Inner);
        assert_eq!(Part::of(TORCH, "aten::addmm"), Part::Operator);
        assert_eq!(Part::of(TORCH, "at::native::addmm_impl()"), Part::Inner);
        assert_eq!(Part::of("/srv/train.py", "step"), Part::Python);
        assert_eq!(Part::of("/srv/server", "step()"), Part::Native);
    }
}

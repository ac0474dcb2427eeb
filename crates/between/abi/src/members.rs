//! Parameters whose names in the SDK's own argument structs (`rocprofiler_hip_api_args_t`,
//! `rocprofiler_hsa_api_args_t`) differ from those in the libraries' headers. AMD's outputs and
//! argument callbacks show the SDK's names, and tools are compiled with them.

/// Functions, the parameter's name in the library's headers, and its name in the SDK (source:
/// rocprofiler-sdk/hip/api_args.h, hsa/api_args.h).
pub const SDK_NAMES: &[(&[&str], &str, &str)] = &[
    (
        &["hipGetDevicePropertiesR0600", "hipGetDevicePropertiesR0000"],
        "device",
        "deviceId",
    ),
    (&["hipChooseDeviceR0000"], "properties", "prop"),
    (
        &[
            "hipKernelNameRef",
            "hipLaunchCooperativeKernel",
            "hipLaunchCooperativeKernel_spt",
            "hipModuleLaunchCooperativeKernel",
            "hipModuleLaunchKernel",
            "hipExtModuleLaunchKernel",
            "hipHccModuleLaunchKernel",
            "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
            "hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
            "hipModuleOccupancyMaxPotentialBlockSize",
            "hipModuleOccupancyMaxPotentialBlockSizeWithFlags",
            "hipOccupancyMaxActiveBlocksPerMultiprocessor",
            "hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
            "hipOccupancyMaxPotentialBlockSize",
        ],
        "f",
        "func",
    ),
    (
        &[
            "hipExtModuleLaunchKernel",
            "hipHccModuleLaunchKernel",
            "hipLaunchCooperativeKernel_spt",
        ],
        "hStream",
        "stream",
    ),
    (&["hipModuleGetFunctionCount"], "module", "mod"),
    (
        &["hipGetDriverEntryPoint", "hipGetDriverEntryPoint_spt"],
        "status",
        "driverStatus",
    ),
    (&["hipMemAdvise_v2"], "device", "location"),
    (
        &[
            "hsa_amd_vmem_address_reserve",
            "hsa_amd_vmem_address_reserve_align",
            "hsa_amd_vmem_address_free",
        ],
        "va",
        "ptr",
    ),
    (
        &["hsa_amd_vmem_retain_alloc_handle"],
        "memory_handle",
        "handle",
    ),
    (
        &["hsa_amd_vmem_get_alloc_properties_from_handle"],
        "memory_handle",
        "alloc_handle",
    ),
];

/// Functions and parameters whose type in the SDK differs, with that type. They are texts that a
/// call fills, which should not be printed, and one parameter that is const in the SDK.
pub const SDK_TYPES: &[(&str, &str, &str)] = &[
    ("hipDeviceGetName", "name", "void *"),
    ("hipDeviceGetPCIBusId", "pciBusId", "void *"),
    ("hipGraphInstantiate", "pLogBuffer", "void *"),
    (
        "hipStreamGetAttribute",
        "value_out",
        "const hipLaunchAttributeValue *",
    ),
];

/// Returns the name that the SDK gives to a parameter.
pub fn sdk_name<'a>(function: &str, parameter: &'a str) -> &'a str {
    SDK_NAMES
        .iter()
        .find(|(functions, from, _)| *from == parameter && functions.contains(&function))
        .map_or(parameter, |(_, _, to)| to)
}

/// Returns the type that the SDK gives to a parameter, where it differs.
pub fn sdk_type(function: &str, parameter: &str) -> Option<&'static str> {
    SDK_TYPES
        .iter()
        .find(|(of, name, _)| *of == function && *name == parameter)
        .map(|(_, _, ty)| *ty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::ALL;

    #[test]
    fn each_is_a_parameter_of_a_function() {
        let known = |function: &str, parameter: &str| {
            ALL.iter().any(|table| {
                table.functions.iter().any(|f| {
                    f.name.as_str() == function && f.parameters.iter().any(|p| p.name == parameter)
                })
            })
        };
        for (functions, from, to) in SDK_NAMES {
            for function in *functions {
                assert!(known(function, from), "{function} {from}");
                assert_eq!(sdk_name(function, from), *to);
            }
        }
        for (function, parameter, ty) in SDK_TYPES {
            assert!(known(function, parameter), "{function} {parameter}");
            assert_eq!(sdk_type(function, parameter), Some(*ty));
        }
        assert_eq!(sdk_name("hipMalloc", "ptr"), "ptr");
        assert_eq!(sdk_type("hipMalloc", "ptr"), None);
    }
}

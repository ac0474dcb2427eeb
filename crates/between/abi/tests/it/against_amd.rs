//! The generated names, compared with what AMD's own tool wrote (`amd_names.tsv`: `strings` of a
//! rocprofv3 1.0.0 JSON output, one kind per line).

use midair_abi::names::{
    BUFFER_KINDS, CALLBACK_KINDS, FIRST_BUFFER_KINDS, FIRST_CALLBACK_KINDS, Kind, STATUS_NAMES,
};
use midair_abi::tables::{ALL, Class};
use midair_abi::{functions, layout};

#[test]
fn kinds_and_operations_are_named_as_amd_names_them() {
    // Newer kinds come after these, so that numbers keep their meaning.
    let mut seen = [0, 0];
    for line in include_str!("../amd_names.tsv").lines() {
        let mut fields = line.split('\t');
        let (which, kinds) = match fields.next().unwrap() {
            "buffer_records" => (0, BUFFER_KINDS),
            "callback_records" => (1, CALLBACK_KINDS),
            other => panic!("{other}"),
        };
        let ours = &kinds[seen[which]];
        seen[which] += 1;
        assert_eq!(ours.name.as_str(), fields.next().unwrap());
        let theirs: Vec<&str> = fields.collect();
        let operations: Vec<&str> = ours.operations.iter().map(|n| n.as_str()).collect();
        assert_eq!(operations, theirs, "{}", ours.name);
    }
    assert_eq!(seen, [FIRST_BUFFER_KINDS, FIRST_CALLBACK_KINDS]);
    let newer = |kinds: &'static [Kind], from: usize| -> Vec<&str> {
        kinds[from..]
            .iter()
            .map(|kind| kind.name.as_str())
            .collect()
    };
    let of_buffers = newer(BUFFER_KINDS, FIRST_BUFFER_KINDS);
    let of_callbacks = newer(CALLBACK_KINDS, FIRST_CALLBACK_KINDS);
    assert_eq!(of_buffers.len(), 6);
    assert_eq!(BUFFER_KINDS[33].name.as_str(), "HIP_GRAPH");
    assert_eq!(BUFFER_KINDS[38].name.as_str(), "HIP_EVENT");
    let newest = [
        "HIP_GRAPH",
        "ROCSHMEM_API",
        "HIPFILE_API",
        "KERNEL_REPLAY",
        "HIP_EVENT",
    ];
    assert_eq!(of_callbacks, newest);
    assert_eq!(CALLBACK_KINDS[26].name.as_str(), "HIP_EVENT");
}

#[test]
fn slots_are_contiguous_and_operations_are_unique_and_named() {
    let sizes: Vec<usize> = ALL.iter().map(|t| t.functions.len()).collect();
    assert_eq!(sizes, [517, 9, 125, 93, 14, 6, 6, 2, 4, 37, 16, 9]);
    for (index, table) in ALL.iter().enumerate() {
        assert_eq!(table.id as usize, index);
        let first = table.functions[0].offset;
        let kind = &BUFFER_KINDS[table.kind as usize];
        let mut ids: Vec<u32> = Vec::new();
        for (slot, function) in table.functions.iter().enumerate() {
            assert_eq!(
                function.offset,
                first + 8 * slot as u32,
                "{}",
                function.name
            );
            assert_eq!(
                kind.operation(function.operation as usize)
                    .unwrap()
                    .as_str(),
                function.name.as_str()
            );
            assert_eq!(
                function.known,
                (function.operation as usize) < kind.operations.len()
            );
            ids.push(function.operation);
        }
        ids.sort_unstable();
        assert!(
            ids.iter().enumerate().all(|(i, id)| i as u32 == *id),
            "{}",
            table.c_name
        );
        assert_eq!(table.size, first + 8 * table.functions.len() as u32);
    }
}

#[test]
fn arguments_lie_where_amd_has_them() {
    let of = |table: usize, name: &str| {
        *ALL[table]
            .functions
            .iter()
            .find(|f| f.name.as_str() == name)
            .unwrap()
    };
    // hipLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t)
    let launch = of(0, "hipLaunchKernel");
    assert_eq!(launch.stream, Some(5));
    let places: Vec<(u8, u16)> = launch
        .parameters
        .iter()
        .map(|p| (p.word, p.args_offset))
        .collect();
    assert_eq!(places, [(0, 0), (1, 8), (3, 20), (5, 32), (6, 40), (7, 48)]);
    assert_eq!(launch.words, 8);
    assert!(launch.parameters[1].ty.class == Class::Struct && launch.parameters[1].ty.size == 12);
    for table in &ALL[..2] {
        for function in table.functions.iter().filter(|f| f.known) {
            let end = function
                .parameters
                .last()
                .map_or(0, |p| p.args_offset + p.ty.size);
            assert!(
                usize::from(end) <= layout::rocprofiler_hip_api_args_t::SIZE,
                "{}",
                function.name
            );
        }
    }
}

#[test]
fn statuses_and_functions_are_complete() {
    assert_eq!(STATUS_NAMES.len(), 42);
    assert_eq!(
        STATUS_NAMES[17].as_str(),
        "ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED"
    );
    assert_eq!(
        STATUS_NAMES[30].as_str(),
        "ROCPROFILER_STATUS_ERROR_CONFIG_NOT_FOUND"
    );
    assert_eq!(
        STATUS_NAMES[41].as_str(),
        "ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_REGISTER_VERSION"
    );
    let names: Vec<&str> = functions::SDK_FUNCTIONS.iter().map(|f| f.name).collect();
    assert!(
        names.contains(&"rocprofiler_create_context") && !names.contains(&"ncclAllReduce"),
        "{names:?}"
    );
}

//! Structs of the counting services (source: `api/rocprofiler_sdk.json`).

use crate::c_struct;
use crate::records::{AsyncCorrelationId, KernelDispatchInfo};
use std::ffi::c_char;

c_struct! {
    /// A dimension of a counter.
    RecordDimensionInfo = rocprofiler_counter_record_dimension_info_t {
        /// Its name.
        name: *const c_char,
        /// How many numbers it has.
        instance_size: usize,
        /// Its id, which queries of positions use.
        id: u64,
    }
}
c_struct! {
    /// A number in a dimension.
    DimensionInfo = rocprofiler_counter_dimension_info_t {
        /// Bytes of this struct.
        size: u64,
        /// The dimension's name.
        dimension_name: *const c_char,
        /// The number.
        index: usize,
    }
}
c_struct! {
    /// One of the places at which a counter has a value.
    DimensionInstanceInfo = rocprofiler_counter_record_dimension_instance_info_t {
        /// Bytes of this struct.
        size: u64,
        /// The instance id in the records of its values.
        instance_id: u64,
        /// The counter.
        counter_id: u64,
        /// How many dimensions it has.
        dimensions_count: u64,
        /// Its number in each dimension.
        dimensions: *const *const DimensionInfo,
    }
}
c_struct! {
    /// Information about a counter.
    CounterInfoV0 = rocprofiler_counter_info_v0_t {
        /// Its id.
        id: u64,
        /// Its name.
        name: *const c_char,
        /// What it counts.
        description: *const c_char,
        /// The block of the hardware; empty for a derived counter.
        block: *const c_char,
        /// The expression of a derived counter.
        expression: *const c_char,
        /// Bit 0: it is constant. Bit 1 (`is_derived`): it is computed from other counters.
        is_constant: u8,
    }
}
c_struct! {
    /// Information about a counter, with the places at which it has values.
    CounterInfoV1 = rocprofiler_counter_info_v1_t {
        /// Bytes of this struct.
        size: u64,
        /// Its id.
        id: u64,
        /// Its name.
        name: *const c_char,
        /// What it counts.
        description: *const c_char,
        /// The block of the hardware; empty for a derived counter.
        block: *const c_char,
        /// The expression of a derived counter.
        expression: *const c_char,
        /// Bit 0: it is constant. Bit 1 (`is_derived`): it is computed from other counters.
        is_constant: u8,
        /// How many dimensions it has.
        dimensions_count: u64,
        /// The dimensions. Some tools read them as one array.
        dimensions: *const *const RecordDimensionInfo,
        /// How many places it has.
        dimensions_instances_count: u64,
        /// The places. Some tools read them as one array.
        dimensions_instances: *const *const DimensionInstanceInfo,
    }
}
c_struct! {
    /// A value.
    CounterRecord = rocprofiler_counter_record_t {
        /// Counter and place.
        id: u64,
        /// The value.
        counter_value: f64,
        /// Its dispatch; 0 for a value of a whole device.
        dispatch_id: u64,
        /// The user data that was given when a sample was requested.
        user_data: u64,
        /// Its agent.
        agent_id: u64,
    }
}
c_struct! {
    /// Information about a dispatch, as a tool's functions get it.
    DispatchCountingData = rocprofiler_dispatch_counting_service_data_t {
        /// Bytes of this struct.
        size: u64,
        /// Correlation.
        correlation_id: AsyncCorrelationId,
        /// Start on the device, 0 before it has ended.
        start_timestamp: u64,
        /// End on the device, 0 before it has ended.
        end_timestamp: u64,
        /// The rest of the dispatch.
        dispatch_info: KernelDispatchInfo,
    }
}
c_struct! {
    /// The record in front of a dispatch's values in a buffer.
    DispatchCountingRecord = rocprofiler_dispatch_counting_service_record_t {
        /// Bytes of this struct.
        size: u64,
        /// How many values follow.
        num_records: u64,
        /// Correlation.
        correlation_id: AsyncCorrelationId,
        /// Start on the device.
        start_timestamp: u64,
        /// End on the device.
        end_timestamp: u64,
        /// The rest of the dispatch.
        dispatch_info: KernelDispatchInfo,
    }
}

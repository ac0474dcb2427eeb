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
        /// Its number, by which positions are asked for.
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
        /// What the records of its values have.
        instance_id: u64,
        /// The counter.
        counter_id: u64,
        /// How many dimensions.
        dimensions_count: u64,
        /// The number in each.
        dimensions: *const *const DimensionInfo,
    }
}
c_struct! {
    /// What a counter is.
    CounterInfoV0 = rocprofiler_counter_info_v0_t {
        /// Its id.
        id: u64,
        /// Its name.
        name: *const c_char,
        /// What it counts.
        description: *const c_char,
        /// The block of the hardware, empty for a derived one.
        block: *const c_char,
        /// Of a derived one.
        expression: *const c_char,
        /// Bit 0: it is constant, bit 1 (`is_derived`): it is computed from others.
        is_constant: u8,
    }
}
c_struct! {
    /// The same, with the places at which it has values.
    CounterInfoV1 = rocprofiler_counter_info_v1_t {
        /// Bytes of this struct.
        size: u64,
        /// Its id.
        id: u64,
        /// Its name.
        name: *const c_char,
        /// What it counts.
        description: *const c_char,
        /// The block of the hardware, empty for a derived one.
        block: *const c_char,
        /// Of a derived one.
        expression: *const c_char,
        /// Bit 0: it is constant, bit 1 (`is_derived`): it is computed from others.
        is_constant: u8,
        /// How many dimensions.
        dimensions_count: u64,
        /// The dimensions; tools read them as one array, too.
        dimensions: *const *const RecordDimensionInfo,
        /// How many places.
        dimensions_instances_count: u64,
        /// The places; one array, too.
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
        /// Of which dispatch; 0 for a device's.
        dispatch_id: u64,
        /// What a sample was asked for with.
        user_data: u64,
        /// On which agent.
        agent_id: u64,
    }
}
c_struct! {
    /// A dispatch, as the functions of a tool get it.
    DispatchCountingData = rocprofiler_dispatch_counting_service_data_t {
        /// Bytes of this struct.
        size: u64,
        /// Correlation.
        correlation_id: AsyncCorrelationId,
        /// Start on the device, 0 before it has ended.
        start_timestamp: u64,
        /// End on the device, 0 before it has ended.
        end_timestamp: u64,
        /// The rest.
        dispatch_info: KernelDispatchInfo,
    }
}
c_struct! {
    /// What is before a dispatch's values in a buffer.
    DispatchCountingRecord = rocprofiler_dispatch_counting_service_record_t {
        /// Bytes of this struct.
        size: u64,
        /// How many values.
        num_records: u64,
        /// Correlation.
        correlation_id: AsyncCorrelationId,
        /// Start on the device.
        start_timestamp: u64,
        /// End on the device.
        end_timestamp: u64,
        /// The rest.
        dispatch_info: KernelDispatchInfo,
    }
}

//! The host functions by which the program launches its kernels, by the kernels' names.
//!
//! A program registers them with HIP before HIP loads the kernels, often when the process starts.
//! So only those are known that were registered while a session wanted them (AMD-071).

use crate::interned::intern;
use midair_abi::records::{Dim3, HostKernelSymbol};
use midair_record::event::kernel_name;
use midair_sdk_hot::host_functions::{self, HostFunction};
use std::collections::HashMap;

/// The ending of the symbol of a kernel's descriptor.
const ENDING: &[u8] = b".kd";

fn without_ending(symbol: &[u8]) -> &[u8] {
    symbol.strip_suffix(ENDING).unwrap_or(symbol)
}

/// The host functions that were registered so far.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// By the name of the kernel as it is recorded, without the ending of a symbol.
    known: HashMap<Vec<u8>, HostFunction>,
    last: u64,
}

impl Hosts {
    /// Takes what was registered since the last call. The first function with a name is kept, as in
    /// AMD's library.
    fn learn(&mut self) {
        for function in host_functions::take() {
            let symbol = [function.device_function.to_bytes(), ENDING].concat();
            let name = without_ending(&kernel_name(&symbol)).to_vec();
            self.known.entry(name).or_insert(function);
        }
    }

    /// Returns the function of a kernel, by the recorded name of the kernel's symbol; `None` where none is
    /// known. It gets its own number: the same program's function for the same kernel on another
    /// device gets another one.
    pub fn of(
        &mut self,
        kernel_id: u64,
        code_object_id: u64,
        symbol: &[u8],
    ) -> Option<HostKernelSymbol> {
        self.learn();
        let function = self.known.get(without_ending(symbol))?;
        self.last += 1;
        let [thread_ids, block_ids, block_dims, grid_dims] =
            function.bounds.map(|[x, y, z]| Dim3 { x, y, z });
        Some(HostKernelSymbol {
            size: size_of::<HostKernelSymbol>() as u64,
            host_function_id: self.last,
            kernel_id,
            code_object_id,
            host_function: function.host_function,
            modules: function.modules,
            device_function: intern(function.device_function.to_bytes()).as_ptr(),
            thread_limit: function.thread_limit,
            thread_ids,
            block_ids,
            block_dims,
            grid_dims,
            workgroup_size: function.workgroup_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, CString};

    #[test]
    fn a_kernels_function_is_found_by_its_symbol() {
        let function = |host_function| HostFunction {
            device_function: c"_Z4vaddPf".to_owned(),
            host_function,
            modules: 7,
            thread_limit: 1024,
            bounds: [[1, 2, 3], [0; 3], [4, 5, 6], [0; 3]],
            workgroup_size: 64,
        };
        host_functions::add(function(0x1000));
        host_functions::add(function(0x2000));
        let mut hosts = Hosts::default();
        assert!(hosts.of(1, 1, b"_Z5scalePf.kd").is_none());
        let first = hosts.of(2, 1, b"_Z4vaddPf.kd").unwrap();
        let second = hosts.of(3, 2, b"_Z4vaddPf.kd").unwrap();
        assert_eq!(
            (first.host_function, second.host_function),
            (0x1000, 0x1000)
        );
        assert_eq!((first.host_function_id, second.host_function_id), (1, 2));
        assert_eq!((second.kernel_id, second.code_object_id), (3, 2));
        assert_eq!((first.thread_ids.z, first.block_dims.y), (3, 5));
        // SAFETY: the pointer is to an interned text.
        let name = unsafe { CStr::from_ptr(first.device_function) };
        assert_eq!(name, c"_Z4vaddPf");

        // Long names are recorded cut, and are found by that.
        let long = |last: u8| HostFunction {
            device_function: CString::new([&[b'k'; 5000][..], &[last]].concat()).unwrap(),
            ..function(last.into())
        };
        for last in [b'a', b'b'] {
            let function = long(last);
            let symbol = [function.device_function.to_bytes(), ENDING].concat();
            host_functions::add(function.clone());
            let found = hosts.of(1, 1, &kernel_name(&symbol)).unwrap();
            assert_eq!(found.host_function, u64::from(last));
            // SAFETY: the pointer is to an interned text.
            let name = unsafe { CStr::from_ptr(found.device_function) };
            assert_eq!(name, function.device_function.as_c_str());
        }
    }
}

// Code objects as they are loaded, read in the callback: the functions that they have are the kernels that are told, and their
// instructions can be had.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/codeobj/code_printing.hpp>

namespace
{
using rocprofiler::sdk::codeobj::disassembly::CodeobjAddressTranslate;

auto& code()
{
    static auto* const the = new CodeobjAddressTranslate;
    return *the;
}

void loaded(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void*)
{
    if (record.phase != ROCPROFILER_CALLBACK_PHASE_LOAD) return;
    if (record.operation == ROCPROFILER_CODE_OBJECT_LOAD) {
        const auto& object = *static_cast<const rocprofiler_callback_tracing_code_object_load_data_t*>(record.payload);
        client::expect(object.size == sizeof object && object.load_size > 0 && *object.uri != 0, "a code object");
        if (object.storage_type != ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_MEMORY) return;
        code().addDecoder(reinterpret_cast<const void*>(object.memory_base), object.memory_size, object.code_object_id,
                          static_cast<uint64_t>(object.load_delta), object.load_size);
    } else if (record.operation == ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER) {
        const auto& kernel = *static_cast<const rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t*>(record.payload);
        // NAME.kd describes the function NAME.
        const std::string name = std::string(kernel.kernel_name).substr(0, std::string(kernel.kernel_name).rfind(".kd"));
        for (const auto& symbol : code().getSymbolMap(kernel.code_object_id)) {
            if (symbol.second.name != name) continue;
            bool ends = false;
            for (uint64_t at = symbol.first; at < symbol.first + symbol.second.mem_size;) {
                const auto instruction = code().get(kernel.code_object_id, at);
                client::expect(instruction && instruction->size >= 4, "an instruction");
                if (!instruction) return;
                ends = ends || instruction->inst == "s_endpgm";
                at += instruction->size;
            }
            client::expect(ends, "the end of a kernel");
            client::add(name.find("vadd") != std::string::npos ? "vadd" : name.find("scale") != std::string::npos ? "scale" : "other");
        }
    }
}
} // namespace

void client::configure()
{
    CALL(rocprofiler_configure_callback_tracing_service(
        new_context(), ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, nullptr, 0, loaded, nullptr));
}

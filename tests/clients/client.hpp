// What the sample clients have in common. A client is one file: it configures its services, counts what it is handed, and at
// the end of each session (attached) or of the process (launched) a line "COUNT NAME" for each thing goes to LOG, then "end".
// All calls are made as AMD's samples make theirs: any status but success is an exception.
#pragma once

#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <cstdint>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#define CALL(call) ::client::need((call), #call)

namespace client
{
inline void need(rocprofiler_status_t status, const char* call)
{
    if (status != ROCPROFILER_STATUS_SUCCESS)
        throw std::runtime_error(std::string(call) + ": " + rocprofiler_get_status_string(status));
}

struct all_t
{
    std::mutex lock;
    std::map<std::string, uint64_t> counts;
    std::vector<rocprofiler_context_id_t> contexts;
    std::vector<rocprofiler_buffer_id_t> buffers;
    bool attached = false;
    // By which a tool may end itself.
    rocprofiler_client_finalize_t finalizer = nullptr;
    rocprofiler_client_id_t* me = nullptr;
};

// Never destroyed: records may come until the very end of the process.
inline all_t& all()
{
    static auto* const the = new all_t;
    return *the;
}

inline void add(const std::string& name, uint64_t count = 1)
{
    const std::lock_guard<std::mutex> hold(all().lock);
    all().counts[name] += count;
}

// A line that no test expects.
inline void expect(bool is_so, const char* what)
{
    if (!is_so) add(std::string("WRONG: ") + what);
}

inline rocprofiler_context_id_t new_context()
{
    rocprofiler_context_id_t context = {0};
    CALL(rocprofiler_create_context(&context));
    all().contexts.push_back(context);
    return context;
}

// With a thread of its own, which the callback is called on.
inline rocprofiler_buffer_id_t
new_buffer(rocprofiler_context_id_t context, rocprofiler_buffer_tracing_cb_t callback, size_t size = 65536, size_t watermark = 49152)
{
    rocprofiler_buffer_id_t buffer = {0};
    CALL(rocprofiler_create_buffer(context, size, watermark, ROCPROFILER_BUFFER_POLICY_LOSSLESS, callback, nullptr, &buffer));
    rocprofiler_callback_thread_t thread = {0};
    CALL(rocprofiler_create_callback_thread(&thread));
    CALL(rocprofiler_assign_callback_thread(buffer, thread));
    all().buffers.push_back(buffer);
    return buffer;
}

// Each record of a buffer, checked as far as all records are alike.
template <typename Use>
void each(rocprofiler_record_header_t** headers, size_t count, uint64_t dropped, Use&& use)
{
    expect(count > 0 && headers != nullptr, "a callback without records");
    expect(dropped == 0, "records were dropped");
    for (size_t n = 0; n < count; ++n) {
        const rocprofiler_record_header_t& header = *headers[n];
        expect(header.hash == rocprofiler_record_header_compute_hash(header.category, header.kind), "the hash of a record");
        expect(header.category == ROCPROFILER_BUFFER_CATEGORY_TRACING, "the category of a record");
        use(static_cast<rocprofiler_buffer_tracing_kind_t>(header.kind), header.payload);
    }
}

// Each client has its own.
void configure();
inline void (*at_the_end)() = nullptr;
// Before its buffers are flushed.
inline void (*before_the_end)() = nullptr;

inline void report()
{
    if (before_the_end != nullptr) before_the_end();
    for (rocprofiler_buffer_id_t buffer : all().buffers)
        CALL(rocprofiler_flush_buffer(buffer));
    if (at_the_end != nullptr) at_the_end();
    const std::lock_guard<std::mutex> hold(all().lock);
    std::ofstream log(LOG, std::ios::app);
    for (const auto& one : all().counts)
        log << one.second << ' ' << one.first << '\n';
    log << "end" << std::endl;
    all().counts.clear();
}

inline int initialize(rocprofiler_client_finalize_t finalizer, void*)
{
    all().finalizer = finalizer;
    configure();
    all().attached = rocprofiler_is_current_client_attachment() != 0;
    if (!all().attached)
        for (rocprofiler_context_id_t context : all().contexts)
            CALL(rocprofiler_start_context(context));
    return 0;
}

inline void finalize(void*)
{
    if (!all().attached) report();
}

inline int attach(rocprofiler_client_finalize_t, rocprofiler_context_id_t* contexts, uint64_t count, void*)
{
    expect(count == all().contexts.size(), "the number of contexts at an attach");
    for (uint64_t n = 0; n < count; ++n)
        CALL(rocprofiler_start_context(contexts[n]));
    return 0;
}

inline void detach(void*)
{
    report();
}
} // namespace client

extern "C" rocprofiler_tool_configure_result_t*
rocprofiler_configure(uint32_t version, const char*, uint32_t, rocprofiler_client_id_t* me)
{
    me->name = "sample client";
    client::all().me = me;
    client::expect(version == ROCPROFILER_VERSION, "the version");
    static rocprofiler_tool_configure_result_t result{sizeof result, client::initialize, client::finalize, nullptr};
    return &result;
}

extern "C" rocprofiler_tool_configure_attach_result_t*
rocprofiler_configure_attach(uint32_t, const char*, uint32_t, rocprofiler_client_id_t*)
{
    static rocprofiler_tool_configure_attach_result_t result{sizeof result, client::attach, client::detach, nullptr};
    return &result;
}

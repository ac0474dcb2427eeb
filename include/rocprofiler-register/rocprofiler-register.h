/* rocprofiler-register: where GPU runtimes hand over their API tables.
 *
 * A runtime calls rocprofiler_register_library_api_table() once it has filled its dispatch tables, from a constructor or at first use
 * and from any thread. The tables are kept for a profiler that comes later; ROCP_REG_NO_TOOLS says that none is there now.
 */
#ifndef ROCPROFILER_REGISTER_ROCPROFILER_REGISTER_H_
#define ROCPROFILER_REGISTER_ROCPROFILER_REGISTER_H_

#include <stddef.h>
#include <stdint.h>

#define ROCPROFILER_REGISTER_PUBLIC_API __attribute__((visibility("default")))
#define ROCPROFILER_REGISTER_ATTRIBUTE(...) __attribute__((__VA_ARGS__))

/* A version as one number: two decimal digits each for minor and patch. */
#define ROCPROFILER_REGISTER_COMPUTE_VERSION_1(major) (10000 * (major))
#define ROCPROFILER_REGISTER_COMPUTE_VERSION_2(major, minor) (10000 * (major) + 100 * (minor))
#define ROCPROFILER_REGISTER_COMPUTE_VERSION_3(major, minor, patch) (10000 * (major) + 100 * (minor) + (patch))

/* The name of a library's import function, and its definition: it gives the library's version, and its address proves (in secure mode)
 * that the caller is the library that it says it is. */
#define ROCPROFILER_REGISTER_IMPORT_FUNC(name) rocprofiler_register_import_##name
#ifdef __cplusplus
#    define ROCPROFILER_REGISTER_C_LINKAGE extern "C"
#else
#    define ROCPROFILER_REGISTER_C_LINKAGE
#endif
#define ROCPROFILER_REGISTER_DEFINE_IMPORT(name, version)                                                              \
    ROCPROFILER_REGISTER_C_LINKAGE ROCPROFILER_REGISTER_PUBLIC_API uint32_t rocprofiler_register_import_##name(void);  \
    ROCPROFILER_REGISTER_C_LINKAGE ROCPROFILER_REGISTER_PUBLIC_API uint32_t rocprofiler_register_import_##name(void)   \
    {                                                                                                                  \
        return (version);                                                                                              \
    }

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t (*rocprofiler_register_import_func_t)(void);

typedef enum rocprofiler_register_error_code_t
{
    ROCP_REG_SUCCESS                     = 0, /* a profiler took the tables */
    ROCP_REG_NO_TOOLS                    = 1, /* kept; nothing profiles this process now */
    ROCP_REG_DEADLOCK                    = 2, /* this thread is already inside such a call */
    ROCP_REG_BAD_API_TABLE_LENGTH        = 3, /* a number of tables that cannot be right */
    ROCP_REG_UNSUPPORTED_API             = 4, /* a library name that is not known */
    ROCP_REG_INVALID_API_ADDRESS         = 5, /* secure mode: the import function is in the wrong file */
    ROCP_REG_ROCPROFILER_ERROR           = 6, /* the profiler refused */
    ROCP_REG_EXCESS_API_INSTANCES        = 7, /* too many copies of one library */
    ROCP_REG_INVALID_ARGUMENT            = 8, /* an argument that cannot be used */
    ROCP_REG_ATTACHMENT_NOT_AVAILABLE    = 9, /* this process cannot be attached to */
    ROCP_REG_ERROR_CODE_END              = 10
} rocprofiler_register_error_code_t;

/* What a registration is known by: a library and which copy of it. */
typedef struct rocprofiler_register_library_indentifier_t
{
    uint64_t handle;
} rocprofiler_register_library_indentifier_t;

/* One registration, as rocprofiler_register_iterate_registration_info() tells it. */
typedef struct rocprofiler_register_registration_info_t
{
    size_t      size;             /* bytes of what is passed; may be more than is declared here */
    const char* common_name;      /* the library's name; lives for ever */
    uint32_t    lib_version;      /* its version */
    uint64_t    api_table_length; /* how many tables */
} rocprofiler_register_registration_info_t;

/* A result other than 0 ends the iteration. */
typedef int (*rocprofiler_register_registration_info_cb_t)(rocprofiler_register_registration_info_t* info, void* data);

/* Hands over tables. `lib_name` is one of hsa, hip, hip_compiler, roctx, rccl, rocdecode, rocjpeg, rocattach, hipFile, rocshmem. The
 * tables stay the library's and must live as long as the process; the array of their addresses is copied. */
rocprofiler_register_error_code_t
rocprofiler_register_library_api_table(const char*                                 lib_name,
                                       rocprofiler_register_import_func_t          import_func,
                                       uint32_t                                    lib_version,
                                       void**                                      api_tables,
                                       uint64_t                                    api_table_length,
                                       rocprofiler_register_library_indentifier_t* register_id)
    ROCPROFILER_REGISTER_PUBLIC_API ROCPROFILER_REGISTER_ATTRIBUTE(nonnull(4, 6));

/* The words for a code. Lives for ever; never NULL. */
const char*
rocprofiler_register_error_string(rocprofiler_register_error_code_t code) ROCPROFILER_REGISTER_PUBLIC_API;

/* Tells `callback` of every registration, the attach helper's first. */
rocprofiler_register_error_code_t
rocprofiler_register_iterate_registration_info(rocprofiler_register_registration_info_cb_t callback, void* data)
    ROCPROFILER_REGISTER_PUBLIC_API;

#ifdef __cplusplus
}
#endif

#endif

/* rocprofiler-sdk-rocpd: the schema of rocpd files, as statements. */
#ifndef ROCPROFILER_SDK_ROCPD_SQL_H_
#define ROCPROFILER_SDK_ROCPD_SQL_H_

#include <rocprofiler-sdk-rocpd/defines.h>
#include <rocprofiler-sdk-rocpd/types.h>
#include <stdint.h>

ROCPD_EXTERN_C_INIT

/* A database engine. */
typedef enum rocpd_sql_engine_t
{
    ROCPD_SQL_ENGINE_NONE = 0,
    ROCPD_SQL_ENGINE_SQLITE3 = 1,
    ROCPD_SQL_ENGINE_LAST = 2
} rocpd_sql_engine_t;

/* A part of the schema. There are no indexes; views that sum up are among the data views. */
typedef enum rocpd_sql_schema_kind_t
{
    ROCPD_SQL_SCHEMA_NONE = 0,
    ROCPD_SQL_SCHEMA_ROCPD_TABLES = 1,
    ROCPD_SQL_SCHEMA_ROCPD_INDEXES = 2,
    ROCPD_SQL_SCHEMA_ROCPD_VIEWS = 3,
    ROCPD_SQL_SCHEMA_ROCPD_DATA_VIEWS = 4,
    ROCPD_SQL_SCHEMA_ROCPD_SUMMARY_VIEWS = 5,
    ROCPD_SQL_SCHEMA_ROCPD_METADATA = 6,
    ROCPD_SQL_SCHEMA_LAST = 7
} rocpd_sql_schema_kind_t;

/* Bits. */
typedef enum rocpd_sql_options_t
{
    ROCPD_SQL_OPTIONS_NONE = 0,
    ROCPD_SQL_OPTIONS_PERSIST_STRINGS = 1,             /* the texts live as long as the process */
    ROCPD_SQL_OPTIONS_SQLITE3_PRAGMA_FOREIGN_KEYS = 2, /* and begin with that statement */
    ROCPD_SQL_OPTIONS_LAST = 0x7fffffff
} rocpd_sql_options_t;

/* What is put into the text. NULL: the place stays as it is. */
typedef struct rocpd_sql_schema_jinja_variables_t
{
    uint64_t size;    /* bytes of this struct */
    const char* uuid; /* for {{uuid}}, the ends of names: with an underscore before, and for hyphens */
    const char* guid; /* for {{guid}} */
} rocpd_sql_schema_jinja_variables_t;

/* Handed the text, and the path of the file that it is from or the name that such a file has. They live until it returns. */
typedef void (*rocpd_sql_load_schema_cb_t)(rocpd_sql_engine_t engine,
                                           rocpd_sql_schema_kind_t kind,
                                           rocpd_sql_options_t options,
                                           const rocpd_sql_schema_jinja_variables_t* variables,
                                           const char* schema_path,
                                           const char* schema_content,
                                           void* user_data);

/* Hands a part of the schema to the callback: a file of the first of these directories and of ROCPD_SCHEMA_PATH that has it,
 * otherwise the schema of the files that midair writes. */
rocpd_status_t
rocpd_sql_load_schema(rocpd_sql_engine_t engine,
                      rocpd_sql_schema_kind_t kind,
                      rocpd_sql_options_t options,
                      const rocpd_sql_schema_jinja_variables_t* variables,
                      rocpd_sql_load_schema_cb_t callback,
                      const char** schema_path_hints,
                      uint64_t num_schema_path_hints,
                      void* user_data) ROCPD_API;

ROCPD_EXTERN_C_FINI

#endif

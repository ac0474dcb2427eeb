// Writes the whole schema of a rocpd file into schema.sql of a directory, in the order in which a writer needs it.
#include <rocprofiler-sdk-rocpd/rocpd.h>
#include <cstring>
#include <fstream>
#include <string>

int main(int, char** argv)
{
    std::string all;
    const rocpd_sql_schema_jinja_variables_t names{sizeof names, "a-guid", "a-guid"};
    const auto load = [&](rocpd_sql_engine_t engine, rocpd_sql_schema_kind_t kind, const char** hints, uint64_t count) {
        return rocpd_sql_load_schema(
            engine, kind, ROCPD_SQL_OPTIONS_SQLITE3_PRAGMA_FOREIGN_KEYS, &names,
            [](rocpd_sql_engine_t, rocpd_sql_schema_kind_t, rocpd_sql_options_t, const rocpd_sql_schema_jinja_variables_t*,
               const char* path, const char* text, void* into) {
                if (std::strlen(path) > 4) *static_cast<std::string*>(into) += text;
            },
            hints, count, &all);
    };
    for (auto kind : {ROCPD_SQL_SCHEMA_ROCPD_TABLES, ROCPD_SQL_SCHEMA_ROCPD_INDEXES, ROCPD_SQL_SCHEMA_ROCPD_METADATA,
                      ROCPD_SQL_SCHEMA_ROCPD_VIEWS, ROCPD_SQL_SCHEMA_ROCPD_DATA_VIEWS, ROCPD_SQL_SCHEMA_ROCPD_SUMMARY_VIEWS})
        if (load(ROCPD_SQL_ENGINE_SQLITE3, kind, nullptr, 0) != ROCPD_STATUS_SUCCESS) return 1;
    if (all.find("{{") != std::string::npos || all.find("rocpd_event_a_guid") == std::string::npos) return 2;
    const std::string directory = argv[1];
    std::ofstream(directory + "/schema.sql") << all;

    // A file of the caller's comes first.
    std::ofstream(directory + "/rocpd_tables.sql") << "mine {{guid}}";
    const char* hints[] = {"/nowhere", directory.c_str()};
    all.clear();
    if (load(ROCPD_SQL_ENGINE_SQLITE3, ROCPD_SQL_SCHEMA_ROCPD_TABLES, hints, 2) != ROCPD_STATUS_SUCCESS) return 3;
    if (all.find("mine a-guid") == std::string::npos) return 4;
    if (load(ROCPD_SQL_ENGINE_NONE, ROCPD_SQL_SCHEMA_ROCPD_TABLES, nullptr, 0) != ROCPD_STATUS_ERROR_SQL_INVALID_ENGINE) return 5;
    if (load(ROCPD_SQL_ENGINE_SQLITE3, ROCPD_SQL_SCHEMA_LAST, nullptr, 0) != ROCPD_STATUS_ERROR_SQL_INVALID_SCHEMA_KIND) return 6;
    if (std::string(rocpd_get_status_name(ROCPD_STATUS_ERROR_SQL_ERROR)) != "ROCPD_STATUS_ERROR_SQL_ERROR") return 7;
    rocpd_version_triplet_t version{};
    return rocpd_get_version_triplet(&version) == ROCPD_STATUS_SUCCESS && version.major == ROCPD_VERSION_MAJOR ? 0 : 8;
}

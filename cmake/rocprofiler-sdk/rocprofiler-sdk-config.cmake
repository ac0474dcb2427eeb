# rocprofiler-sdk: profiling tools: contexts, buffers, callbacks.
#
#     find_package(rocprofiler-sdk REQUIRED)
#     target_link_libraries(my-program rocprofiler-sdk::rocprofiler-sdk)
#
# Everything is found from the place of this file, so an installed tree may be moved.

get_filename_component(rocprofiler-sdk_ROOT_DIR "${CMAKE_CURRENT_LIST_DIR}/../../.." REALPATH)
set(rocprofiler-sdk_INCLUDE_DIR "${rocprofiler-sdk_ROOT_DIR}/include")
set(rocprofiler-sdk_LIB_DIR "${rocprofiler-sdk_ROOT_DIR}/lib")
set(rocprofiler-sdk_INCLUDE_DIRS "${rocprofiler-sdk_INCLUDE_DIR}")
set(rocprofiler-sdk_LIBRARY "${rocprofiler-sdk_LIB_DIR}/librocprofiler-sdk.so.1")
set(rocprofiler-sdk_LIBRARIES rocprofiler-sdk::rocprofiler-sdk)

foreach(file IN ITEMS "${rocprofiler-sdk_INCLUDE_DIR}/rocprofiler-sdk/rocprofiler.h" "${rocprofiler-sdk_LIBRARY}")
  if(NOT EXISTS "${file}")
    set(rocprofiler-sdk_FOUND FALSE)
    set(rocprofiler-sdk_NOT_FOUND_MESSAGE "${file} is not there: the installation in ${rocprofiler-sdk_ROOT_DIR} is not whole")
    return()
  endif()
endforeach()
unset(file)

if(NOT TARGET rocprofiler-sdk::rocprofiler-sdk)
  add_library(rocprofiler-sdk::rocprofiler-sdk SHARED IMPORTED)
  set_target_properties(rocprofiler-sdk::rocprofiler-sdk PROPERTIES
    IMPORTED_LOCATION "${rocprofiler-sdk_LIBRARY}"
    IMPORTED_SONAME librocprofiler-sdk.so.1
    INTERFACE_INCLUDE_DIRECTORIES "${rocprofiler-sdk_INCLUDE_DIR}")
endif()

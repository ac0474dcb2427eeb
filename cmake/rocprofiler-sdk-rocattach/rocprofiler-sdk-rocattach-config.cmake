# rocprofiler-sdk-rocattach: attach a profiler to a running process.
#
#     find_package(rocprofiler-sdk-rocattach REQUIRED)
#     target_link_libraries(my-program rocprofiler-sdk-rocattach::rocprofiler-sdk-rocattach)
#
# Everything is found from the place of this file, so an installed tree may be moved.

get_filename_component(rocprofiler-sdk-rocattach_ROOT_DIR "${CMAKE_CURRENT_LIST_DIR}/../../.." REALPATH)
set(rocprofiler-sdk-rocattach_INCLUDE_DIR "${rocprofiler-sdk-rocattach_ROOT_DIR}/include")
set(rocprofiler-sdk-rocattach_LIB_DIR "${rocprofiler-sdk-rocattach_ROOT_DIR}/lib")
set(rocprofiler-sdk-rocattach_INCLUDE_DIRS "${rocprofiler-sdk-rocattach_INCLUDE_DIR}")
set(rocprofiler-sdk-rocattach_LIBRARY "${rocprofiler-sdk-rocattach_LIB_DIR}/librocprofiler-sdk-rocattach.so.1")
set(rocprofiler-sdk-rocattach_LIBRARIES rocprofiler-sdk-rocattach::rocprofiler-sdk-rocattach)

foreach(file IN ITEMS "${rocprofiler-sdk-rocattach_INCLUDE_DIR}/rocprofiler-sdk-rocattach/rocattach.h" "${rocprofiler-sdk-rocattach_LIBRARY}")
  if(NOT EXISTS "${file}")
    set(rocprofiler-sdk-rocattach_FOUND FALSE)
    set(rocprofiler-sdk-rocattach_NOT_FOUND_MESSAGE "${file} is not there: the installation in ${rocprofiler-sdk-rocattach_ROOT_DIR} is not whole")
    return()
  endif()
endforeach()
unset(file)

if(NOT TARGET rocprofiler-sdk-rocattach::rocprofiler-sdk-rocattach)
  add_library(rocprofiler-sdk-rocattach::rocprofiler-sdk-rocattach SHARED IMPORTED)
  set_target_properties(rocprofiler-sdk-rocattach::rocprofiler-sdk-rocattach PROPERTIES
    IMPORTED_LOCATION "${rocprofiler-sdk-rocattach_LIBRARY}"
    IMPORTED_SONAME librocprofiler-sdk-rocattach.so.1
    INTERFACE_INCLUDE_DIRECTORIES "${rocprofiler-sdk-rocattach_INCLUDE_DIR}")
endif()

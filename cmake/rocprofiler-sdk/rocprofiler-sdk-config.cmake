# rocprofiler-sdk: profiling tools: contexts, buffers, callbacks.
#
#     find_package(rocprofiler-sdk REQUIRED)
#     target_link_libraries(my-program rocprofiler-sdk::rocprofiler-sdk)
#
# Targets: rocprofiler-sdk::rocprofiler-sdk, the library with its headers; under that name and -shared-library the file, under
# that name and -headers the headers alone; and the program rocprofiler-sdk::rocprofv3. Components: shared-library, headers.
# Functions: see rocprofiler-sdk-utilities.cmake.
#
# Everything is found from the place of this file, so an installed tree may be moved.

get_filename_component(rocprofiler-sdk_ROOT_DIR "${CMAKE_CURRENT_LIST_DIR}/../../.." REALPATH)
set(rocprofiler-sdk_INCLUDE_DIR "${rocprofiler-sdk_ROOT_DIR}/include")
set(rocprofiler-sdk_LIB_DIR "${rocprofiler-sdk_ROOT_DIR}/lib")
set(rocprofiler-sdk_INCLUDE_DIRS "${rocprofiler-sdk_INCLUDE_DIR}")
set(rocprofiler-sdk_LIBRARY "${rocprofiler-sdk_LIB_DIR}/librocprofiler-sdk.so.1")
set(rocprofiler-sdk_LIBRARIES rocprofiler-sdk::rocprofiler-sdk)

foreach(file IN ITEMS "${rocprofiler-sdk_INCLUDE_DIR}/rocprofiler-sdk/rocprofiler.h" "${rocprofiler-sdk_LIBRARY}"
        "${rocprofiler-sdk_ROOT_DIR}/bin/rocprofv3")
  if(NOT EXISTS "${file}")
    set(rocprofiler-sdk_FOUND FALSE)
    set(rocprofiler-sdk_NOT_FOUND_MESSAGE "${file} is not there: the installation in ${rocprofiler-sdk_ROOT_DIR} is not whole")
    return()
  endif()
endforeach()
unset(file)

foreach(name IN ITEMS rocprofiler-sdk rocprofiler-sdk-shared-library)
  if(NOT TARGET rocprofiler-sdk::${name})
    add_library(rocprofiler-sdk::${name} SHARED IMPORTED)
    set_target_properties(rocprofiler-sdk::${name} PROPERTIES
      IMPORTED_LOCATION "${rocprofiler-sdk_LIBRARY}"
      IMPORTED_SONAME librocprofiler-sdk.so.1
      INTERFACE_INCLUDE_DIRECTORIES "${rocprofiler-sdk_INCLUDE_DIR}")
  endif()
endforeach()
unset(name)
if(NOT TARGET rocprofiler-sdk::rocprofiler-sdk-headers)
  add_library(rocprofiler-sdk::rocprofiler-sdk-headers INTERFACE IMPORTED)
  set_target_properties(rocprofiler-sdk::rocprofiler-sdk-headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${rocprofiler-sdk_INCLUDE_DIR}")
endif()
if(NOT TARGET rocprofiler-sdk::rocprofv3)
  add_executable(rocprofiler-sdk::rocprofv3 IMPORTED)
  set_target_properties(rocprofiler-sdk::rocprofv3 PROPERTIES
    IMPORTED_LOCATION "${rocprofiler-sdk_ROOT_DIR}/bin/rocprofv3")
endif()

include("${CMAKE_CURRENT_LIST_DIR}/rocprofiler-sdk-utilities.cmake")

foreach(part IN LISTS rocprofiler-sdk_FIND_COMPONENTS)
  if(TARGET rocprofiler-sdk::rocprofiler-sdk-${part})
    set(rocprofiler-sdk_${part}_FOUND TRUE)
  elseif(rocprofiler-sdk_FIND_REQUIRED_${part})
    set(rocprofiler-sdk_FOUND FALSE)
    set(rocprofiler-sdk_NOT_FOUND_MESSAGE "rocprofiler-sdk has no component ${part}")
  endif()
endforeach()
unset(part)

# rocprofiler-sdk-rocpd: the schema of rocpd files.
#
#     find_package(rocprofiler-sdk-rocpd REQUIRED)
#     target_link_libraries(my-program rocprofiler-sdk-rocpd::rocprofiler-sdk-rocpd)
#
# Everything is found from the place of this file, so an installed tree may be moved.

get_filename_component(rocprofiler-sdk-rocpd_ROOT_DIR "${CMAKE_CURRENT_LIST_DIR}/../../.." REALPATH)
set(rocprofiler-sdk-rocpd_INCLUDE_DIR "${rocprofiler-sdk-rocpd_ROOT_DIR}/include")
set(rocprofiler-sdk-rocpd_LIB_DIR "${rocprofiler-sdk-rocpd_ROOT_DIR}/lib")
set(rocprofiler-sdk-rocpd_INCLUDE_DIRS "${rocprofiler-sdk-rocpd_INCLUDE_DIR}")
set(rocprofiler-sdk-rocpd_LIBRARY "${rocprofiler-sdk-rocpd_LIB_DIR}/librocprofiler-sdk-rocpd.so.1")
set(rocprofiler-sdk-rocpd_LIBRARIES rocprofiler-sdk-rocpd::rocprofiler-sdk-rocpd)

foreach(file IN ITEMS "${rocprofiler-sdk-rocpd_INCLUDE_DIR}/rocprofiler-sdk-rocpd/rocpd.h" "${rocprofiler-sdk-rocpd_LIBRARY}")
  if(NOT EXISTS "${file}")
    set(rocprofiler-sdk-rocpd_FOUND FALSE)
    set(rocprofiler-sdk-rocpd_NOT_FOUND_MESSAGE "${file} is not there: the installation in ${rocprofiler-sdk-rocpd_ROOT_DIR} is not whole")
    return()
  endif()
endforeach()
unset(file)

# The same file under two names, and its headers alone: -shared-library and -headers.
foreach(name IN ITEMS rocprofiler-sdk-rocpd rocprofiler-sdk-rocpd-shared-library)
  if(NOT TARGET rocprofiler-sdk-rocpd::${name})
    add_library(rocprofiler-sdk-rocpd::${name} SHARED IMPORTED)
    set_target_properties(rocprofiler-sdk-rocpd::${name} PROPERTIES
      IMPORTED_LOCATION "${rocprofiler-sdk-rocpd_LIBRARY}"
      IMPORTED_SONAME librocprofiler-sdk-rocpd.so.1
      INTERFACE_INCLUDE_DIRECTORIES "${rocprofiler-sdk-rocpd_INCLUDE_DIR}")
  endif()
endforeach()
unset(name)
if(NOT TARGET rocprofiler-sdk-rocpd::rocprofiler-sdk-rocpd-headers)
  add_library(rocprofiler-sdk-rocpd::rocprofiler-sdk-rocpd-headers INTERFACE IMPORTED)
  set_target_properties(rocprofiler-sdk-rocpd::rocprofiler-sdk-rocpd-headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${rocprofiler-sdk-rocpd_INCLUDE_DIR}")
endif()

foreach(part IN LISTS rocprofiler-sdk-rocpd_FIND_COMPONENTS)
  if(TARGET rocprofiler-sdk-rocpd::rocprofiler-sdk-rocpd-${part})
    set(rocprofiler-sdk-rocpd_${part}_FOUND TRUE)
  elseif(rocprofiler-sdk-rocpd_FIND_REQUIRED_${part})
    set(rocprofiler-sdk-rocpd_FOUND FALSE)
    set(rocprofiler-sdk-rocpd_NOT_FOUND_MESSAGE "rocprofiler-sdk-rocpd has no component ${part}")
  endif()
endforeach()
unset(part)

# rocprofiler-sdk-roctx: marks, ranges and names from a program.
#
#     find_package(rocprofiler-sdk-roctx REQUIRED)
#     target_link_libraries(my-program rocprofiler-sdk-roctx::rocprofiler-sdk-roctx)
#
# Everything is found from the place of this file, so an installed tree may be moved.

get_filename_component(rocprofiler-sdk-roctx_ROOT_DIR "${CMAKE_CURRENT_LIST_DIR}/../../.." REALPATH)
set(rocprofiler-sdk-roctx_INCLUDE_DIR "${rocprofiler-sdk-roctx_ROOT_DIR}/include")
set(rocprofiler-sdk-roctx_LIB_DIR "${rocprofiler-sdk-roctx_ROOT_DIR}/lib")
set(rocprofiler-sdk-roctx_INCLUDE_DIRS "${rocprofiler-sdk-roctx_INCLUDE_DIR}")
set(rocprofiler-sdk-roctx_LIBRARY "${rocprofiler-sdk-roctx_LIB_DIR}/librocprofiler-sdk-roctx.so.1")
set(rocprofiler-sdk-roctx_LIBRARIES rocprofiler-sdk-roctx::rocprofiler-sdk-roctx)

foreach(file IN ITEMS "${rocprofiler-sdk-roctx_INCLUDE_DIR}/rocprofiler-sdk-roctx/roctx.h" "${rocprofiler-sdk-roctx_LIBRARY}")
  if(NOT EXISTS "${file}")
    set(rocprofiler-sdk-roctx_FOUND FALSE)
    set(rocprofiler-sdk-roctx_NOT_FOUND_MESSAGE "${file} is not there: the installation in ${rocprofiler-sdk-roctx_ROOT_DIR} is not whole")
    return()
  endif()
endforeach()
unset(file)

# The same file under two names, and its headers alone: -shared-library and -headers.
foreach(name IN ITEMS rocprofiler-sdk-roctx rocprofiler-sdk-roctx-shared-library)
  if(NOT TARGET rocprofiler-sdk-roctx::${name})
    add_library(rocprofiler-sdk-roctx::${name} SHARED IMPORTED)
    set_target_properties(rocprofiler-sdk-roctx::${name} PROPERTIES
      IMPORTED_LOCATION "${rocprofiler-sdk-roctx_LIBRARY}"
      IMPORTED_SONAME librocprofiler-sdk-roctx.so.1
      INTERFACE_INCLUDE_DIRECTORIES "${rocprofiler-sdk-roctx_INCLUDE_DIR}")
  endif()
endforeach()
unset(name)
if(NOT TARGET rocprofiler-sdk-roctx::rocprofiler-sdk-roctx-headers)
  add_library(rocprofiler-sdk-roctx::rocprofiler-sdk-roctx-headers INTERFACE IMPORTED)
  set_target_properties(rocprofiler-sdk-roctx::rocprofiler-sdk-roctx-headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${rocprofiler-sdk-roctx_INCLUDE_DIR}")
endif()

foreach(part IN LISTS rocprofiler-sdk-roctx_FIND_COMPONENTS)
  if(TARGET rocprofiler-sdk-roctx::rocprofiler-sdk-roctx-${part})
    set(rocprofiler-sdk-roctx_${part}_FOUND TRUE)
  elseif(rocprofiler-sdk-roctx_FIND_REQUIRED_${part})
    set(rocprofiler-sdk-roctx_FOUND FALSE)
    set(rocprofiler-sdk-roctx_NOT_FOUND_MESSAGE "rocprofiler-sdk-roctx has no component ${part}")
  endif()
endforeach()
unset(part)

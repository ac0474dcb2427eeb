# rocprofiler-register: where GPU runtimes hand over their API tables.
#
#     find_package(rocprofiler-register REQUIRED)
#     target_link_libraries(my-program rocprofiler-register::rocprofiler-register)
#
# Everything is found from the place of this file, so an installed tree may be moved.

get_filename_component(rocprofiler-register_ROOT_DIR "${CMAKE_CURRENT_LIST_DIR}/../../.." REALPATH)
set(rocprofiler-register_INCLUDE_DIR "${rocprofiler-register_ROOT_DIR}/include")
set(rocprofiler-register_LIB_DIR "${rocprofiler-register_ROOT_DIR}/lib")
set(rocprofiler-register_INCLUDE_DIRS "${rocprofiler-register_INCLUDE_DIR}")
set(rocprofiler-register_LIBRARY "${rocprofiler-register_LIB_DIR}/librocprofiler-register.so.0")
set(rocprofiler-register_LIBRARIES rocprofiler-register::rocprofiler-register)

foreach(file IN ITEMS "${rocprofiler-register_INCLUDE_DIR}/rocprofiler-register/rocprofiler-register.h" "${rocprofiler-register_LIBRARY}")
  if(NOT EXISTS "${file}")
    set(rocprofiler-register_FOUND FALSE)
    set(rocprofiler-register_NOT_FOUND_MESSAGE "${file} is not there: the installation in ${rocprofiler-register_ROOT_DIR} is not whole")
    return()
  endif()
endforeach()
unset(file)

if(NOT TARGET rocprofiler-register::rocprofiler-register)
  add_library(rocprofiler-register::rocprofiler-register SHARED IMPORTED)
  set_target_properties(rocprofiler-register::rocprofiler-register PROPERTIES
    IMPORTED_LOCATION "${rocprofiler-register_LIBRARY}"
    IMPORTED_SONAME librocprofiler-register.so.0
    INTERFACE_INCLUDE_DIRECTORIES "${rocprofiler-register_INCLUDE_DIR}")
endif()

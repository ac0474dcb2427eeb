# What builders of tests ask of the machine that they build on.

# Where the driver describes the machine, a directory for each CPU and GPU.
if(NOT DEFINED rocprofiler-sdk_TOPOLOGY_DIR)
  set(rocprofiler-sdk_TOPOLOGY_DIR "/sys/class/kfd/kfd/topology/nodes")
endif()

# rocprofiler_sdk_get_gfx_architectures(VARIABLE [ECHO] [PREFIX words] [DELIM words])
#
# Sets a variable to the list of the machine's GPUs, such as gfx942;gfx90a, each once; empty if there are none. ECHO prints them,
# with words before and between.
function(rocprofiler_sdk_get_gfx_architectures variable)
  cmake_parse_arguments(PARSE_ARGV 1 ask "ECHO" "PREFIX;DELIM" "")
  if(NOT DEFINED ask_DELIM)
    set(ask_DELIM ", ")
  endif()
  file(GLOB nodes "${rocprofiler-sdk_TOPOLOGY_DIR}/*/properties")
  set(found)
  foreach(node IN LISTS nodes)
    # The driver's files have no size, so file(READ) is what reads them.
    file(READ "${node}" text)
    # 90402 is gfx942: two decimal digits for minor and stepping, and a stepping above 9 is a letter. A CPU has 0.
    if(text MATCHES "gfx_target_version ([1-9][0-9]*)")
      math(EXPR major "${CMAKE_MATCH_1} / 10000")
      math(EXPR minor "${CMAKE_MATCH_1} / 100 % 100")
      math(EXPR stepping "${CMAKE_MATCH_1} % 100")
      string(SUBSTRING "0123456789abcdef" ${stepping} 1 stepping)
      list(APPEND found "gfx${major}${minor}${stepping}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  if(ask_ECHO)
    list(JOIN found "${ask_DELIM}" words)
    message(STATUS "${ask_PREFIX}System architectures: ${words}")
  endif()
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()

# rocprofiler_sdk_pc_sampling_disabled(VARIABLE [ECHO] [PREFIX words])
#
# Sets a variable to TRUE where the first GPU has no PC sampling, or there is none.
function(rocprofiler_sdk_pc_sampling_disabled variable)
  cmake_parse_arguments(PARSE_ARGV 1 ask "ECHO" "PREFIX" "")
  _rocprofiler_sdk_first_gpu_lacks("^gfx(90a|94[0-9]|95[0-9]|12[0-9][0-9])$" lacks "PC sampling")
  set(${variable} ${lacks} PARENT_SCOPE)
endfunction()

# The same for PC sampling by the hardware's own clock.
function(rocprofiler_sdk_pc_sampling_stochastic_disabled variable)
  cmake_parse_arguments(PARSE_ARGV 1 ask "ECHO" "PREFIX" "")
  _rocprofiler_sdk_first_gpu_lacks("^gfx(94[0-9]|95[0-9])$" lacks "Stochastic PC sampling")
  set(${variable} ${lacks} PARENT_SCOPE)
endfunction()

macro(_rocprofiler_sdk_first_gpu_lacks pattern result what)
  rocprofiler_sdk_get_gfx_architectures(gpus)
  list(APPEND gpus none)
  list(GET gpus 0 first)
  if("${first}" MATCHES "${pattern}")
    set(${result} FALSE)
  else()
    set(${result} TRUE)
  endif()
  if(ask_ECHO)
    message(STATUS "${ask_PREFIX}${what} is disabled for ${first}: ${${result}}")
  endif()
endmacro()

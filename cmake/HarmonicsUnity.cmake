# What makes building everything cheaper. Sources of a folder compiled together, some at a time (HARMONICS_UNITY): what headers cost is paid once per group. Names in anonymous namespaces are
# unique in their folder, therefore. Kernels, and what they are measured with, are compiled one by one: the optimiser sees them alone.
option(HARMONICS_UNITY "compile the sources of a folder in groups: builds everything in half the time, one change in more" OFF)

option(HARMONICS_PCH "compile what most tests begin with once" OFF)

# hm_unity(target sources_of_a_group)
function(hm_unity target size)
  if(HARMONICS_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
    # It takes the sources of a group for headers, in which a class must not use what is anonymous.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# Faster full builds. HARMONICS_UNITY compiles the sources of a folder in groups, so each group parses its headers once;
# names in anonymous namespaces must therefore be unique in their folder. Kernels and their benchmarks are always
# compiled one by one, so that grouping does not affect optimisation.
option(HARMONICS_UNITY "compile sources in groups: full builds take half the time, incremental builds longer" OFF)

option(HARMONICS_PCH "share one precompiled header between most tests" OFF)

# hm_unity(target size): compiles the target in groups of `size` sources.
function(hm_unity target size)
  if(HARMONICS_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
    # g++ treats the sources of a group as headers, in which a class must not use an anonymous namespace.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# The kernels of nn, compiled once for each instruction set from src/nn/kernels/; which of them run is
# chosen by what the processor can do (src/nn/kernels.cpp). Always optimised, so that no function of
# a header is left to be linked for all, and without -march, which would name a processor.

# dapple_kernels(SET FILE... [OPTIONS ...]): in namespace dapple::nn::SET.
function(dapple_kernels set)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "OPTIONS")
  add_library(dapple_kernels_${set} OBJECT)
  list(TRANSFORM arg_UNPARSED_ARGUMENTS PREPEND ${PROJECT_SOURCE_DIR}/src/nn/kernels/)
  target_sources(dapple_kernels_${set} PRIVATE ${arg_UNPARSED_ARGUMENTS})
  # Eigen's namespace is renamed, so that what one set is compiled to is linked to no other.
  target_compile_definitions(dapple_kernels_${set} PRIVATE
                             DAPPLE_KERNELS=${set} Eigen=Eigen_${set} EIGEN_NO_DEBUG)
  target_include_directories(dapple_kernels_${set} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(dapple_kernels_${set} PRIVATE dapple_options Eigen3::Eigen)
  target_compile_options(dapple_kernels_${set} PRIVATE
                         -O3 -fno-math-errno -fno-trapping-math ${arg_OPTIONS})
  target_sources(dapple_nn PRIVATE $<TARGET_OBJECTS:dapple_kernels_${set}>)
endfunction()

dapple_kernels(portable portable_product.cpp)
dapple_kernels(baseline products.cpp elementwise.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  dapple_kernels(avx2 products.cpp elementwise.cpp OPTIONS -mavx2 -mfma)
  set(wide -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Its own headers have variables that are set to themselves (GCC bug 105593).
    list(APPEND wide -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  dapple_kernels(avx512 products.cpp elementwise.cpp OPTIONS ${wide})
endif()

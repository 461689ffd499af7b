# CUDA: code for every card from compute capability 8.0 on and, for 9.0, with Hopper's own instructions (the "a").
# The runtime is linked in, so that a machine needs nothing but the driver.
enable_language(CUDA)
find_package(CUDAToolkit 12.8 REQUIRED)
# CMake 3.25 does not know that nvcc takes C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)

function(lily_cuda_target target)
  set_target_properties(${target} PROPERTIES
    CUDA_RUNTIME_LIBRARY Static CUDA_ARCHITECTURES OFF)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-gencode=arch=compute_80,code=[compute_80,sm_80];-gencode=arch=compute_90a,code=sm_90a>")
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(${target} PUBLIC CUDA::cudart_static)
endfunction()

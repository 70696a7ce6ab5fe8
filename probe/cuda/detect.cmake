# detect.cmake - whether the CUDA executor is built; sets LEDGER_WITH_CUDA and says why.
#
# AUTO builds it where nvcc is found, on PATH or in the toolkit's usual folder, and does without where it is not. The preset
# native-release, which scripts/build takes, says AUTO; a bare `cmake` says OFF, for nvcc takes a minute or two.
set(LEDGER_CUDA OFF CACHE STRING "Build the CUDA executor: AUTO (where nvcc is found), ON (fail without), OFF")
set_property(CACHE LEDGER_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for A100 (which other 8.x cards run) and H100/H200, and PTX that drivers compile for newer ones. A release adds
# "75-real;80-real;86-real;89-real;90-real;100-real;120"; `native` is whatever GPU this machine has.
set(LEDGER_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "As CMAKE_CUDA_ARCHITECTURES")

# What scripts/test asks for where there is no GPU to run the kernels: they are compiled for A100 and H100, and hardly optimised.
# That takes a sixth of the time. scripts/build and scripts/run compile them in full.
option(LEDGER_CUDA_QUICK "Compile CUDA kernels for a check of the build, not for use" OFF)

set(LEDGER_WITH_CUDA OFF)
if(LEDGER_SANITIZE AND NOT LEDGER_CUDA STREQUAL "OFF")
  message(STATUS "CUDA executor: not built, the sanitizers do not know device code")
elseif(LEDGER_CUDA STREQUAL "OFF")
  message(STATUS "CUDA executor: not built (-DLEDGER_CUDA=AUTO builds it where nvcc is)")
else()
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(LEDGER_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
    if(LEDGER_NVCC)
      set(CMAKE_CUDA_COMPILER ${LEDGER_NVCC})
    endif()
  endif()
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES ${LEDGER_CUDA_ARCHITECTURES})
    if(LEDGER_CUDA_QUICK)
      set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real")
    endif()
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
    endif()
    enable_language(CUDA)
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 knows none later than C++17 for nvcc
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    find_package(CUDAToolkit REQUIRED)
    if(CUDAToolkit_VERSION VERSION_LESS 12.4)
      message(FATAL_ERROR "CUDA executor: nvcc ${CUDAToolkit_VERSION} is too old, 12.4 is the oldest. Build without: -DLEDGER_CUDA=OFF")
    endif()
    set(LEDGER_WITH_CUDA ON)
    message(STATUS "CUDA executor: built with nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(LEDGER_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA executor: not built, no nvcc on PATH or in /usr/local/cuda (-DLEDGER_CUDA=ON insists)")
  else()
    message(FATAL_ERROR "CUDA executor: LEDGER_CUDA=ON, but there is no nvcc on PATH or in /usr/local/cuda. Put the CUDA "
                        "toolkit's bin folder on PATH or set CUDA_HOME.")
  endif()
endif()

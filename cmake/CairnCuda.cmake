# The cuda backend's compiler. Custom commands call nvcc, because CMake's CUDA language must be enabled before nvcc is
# known to exist, and cannot set the architectures and keep ptxas's report for one source.
#
# CAIRN_CUDA_ARCHITECTURES: NN for machine code of sm_NN, NN-virtual for PTX that newer GPUs compile when they load it.

# Sets <found> and the CAIRN_CUDA_… variables, or <why> not.
function(cairn_find_cuda found why)
  set(${found} OFF PARENT_SCOPE)
  find_program(CAIRN_NVCC nvcc HINTS $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT CAIRN_NVCC)
    set(${why} "there is no nvcc" PARENT_SCOPE)
    return()
  endif()
  get_filename_component(bin ${CAIRN_NVCC} REALPATH)
  get_filename_component(root ${bin}/../.. ABSOLUTE)
  file(GLOB targets ${root}/targets/*-linux)
  find_path(CAIRN_CUBLASLT_INCLUDE cublasLt.h HINTS ${root} ${targets} PATH_SUFFIXES include)
  find_library(CAIRN_CUDART cudart_static HINTS ${root} ${targets} PATH_SUFFIXES lib64 lib)
  # Only to know its folder, but for bench_products. Python wheels have the versioned name alone.
  find_library(CAIRN_CUBLASLT NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12 HINTS ${root} ${targets} PATH_SUFFIXES lib64 lib)
  foreach(part CAIRN_CUBLASLT_INCLUDE CAIRN_CUDART)
    if(NOT ${part})
      set(${why} "${CAIRN_NVCC} exists, but its toolkit lacks cublasLt.h or libcudart_static.a" PARENT_SCOPE)
      return()
    endif()
  endforeach()

  if(NOT CAIRN_CUDA_ARCHITECTURES)
    execute_process(COMMAND ${CAIRN_NVCC} --list-gpu-arch OUTPUT_VARIABLE known ERROR_VARIABLE known)
    foreach(architecture 75 80 90a 80-virtual) # no kernel has other code for 90: its PTX would be compiled for nothing
      string(REGEX MATCH "^[0-9]+" number ${architecture})
      if(known MATCHES "compute_${number}[^0-9]")
        list(APPEND architectures ${architecture})
      endif()
    endforeach()
    set(CAIRN_CUDA_ARCHITECTURES "${architectures}" CACHE STRING "GPUs the cuda backend is compiled for" FORCE)
  endif()

  # Try nvcc with this host compiler and these architectures, once for each combination.
  set(question "${CAIRN_NVCC} ${CMAKE_C_COMPILER} ${CAIRN_CUDA_ARCHITECTURES}")
  if(NOT CAIRN_CUDA_TRIED STREQUAL question)
    set(source ${CMAKE_BINARY_DIR}/CMakeFiles/try_cuda.cu)
    file(WRITE ${source} "__global__ void nothing(float *x) { *x = 0; }\n")
    cairn_cuda_flags(flags)
    execute_process(COMMAND ${CAIRN_NVCC} ${flags} -c ${source} -o ${source}.o RESULT_VARIABLE result
                    OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
      string(REGEX REPLACE "\n.*" "" output "${output}")
      set(${why} "${CAIRN_NVCC} cannot compile here: ${output}" PARENT_SCOPE)
      return()
    endif()
    set(CAIRN_CUDA_TRIED "${question}" CACHE INTERNAL "")
  endif()
  set(${found} ON PARENT_SCOPE)
endfunction()

# Sets <found> and CAIRN_CUDNN_INCLUDE, or <why> not. NVIDIA's packages have the header in the toolkit's folder or in the
# system's; the one from pip in site-packages/nvidia/cudnn/include, which CUDNN_HOME names without the last part.
function(cairn_find_cudnn found why)
  set(${found} OFF PARENT_SCOPE)
  find_path(CAIRN_CUDNN_INCLUDE cudnn_graph.h HINTS $ENV{CUDNN_HOME} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda
            PATH_SUFFIXES include DOC "Folder of cudnn.h")
  if(NOT CAIRN_CUDNN_INCLUDE)
    set(${why} "there is no cudnn_graph.h; set CUDNN_HOME" PARENT_SCOPE)
    return()
  endif()
  set(header ${CAIRN_CUDNN_INCLUDE}/cudnn_version.h)
  set(version 0)
  foreach(part MAJOR MINOR PATCHLEVEL)
    file(STRINGS ${header} line REGEX "#define CUDNN_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    math(EXPR version "${version} * 100 + 0${number}")
  endforeach()
  if(version LESS 91801)
    set(${why} "${header} is of version ${version}, and 9.18.1 is needed" PARENT_SCOPE)
    return()
  endif()
  set(${found} ON PARENT_SCOPE)
endfunction()

# Sets <found> and CAIRN_CUTLASS_INCLUDE, or <why> not. CUTLASS_HOME: a folder with its include/, or into which the wheel
# nvidia-cutlass was unpacked.
function(cairn_find_cutlass found why)
  set(${found} OFF PARENT_SCOPE)
  find_path(CAIRN_CUTLASS_INCLUDE cutlass/version.h HINTS $ENV{CUTLASS_HOME} PATH_SUFFIXES include cutlass_library/source/include
            DOC "Folder of cutlass/version.h")
  if(NOT CAIRN_CUTLASS_INCLUDE)
    set(${why} "there is no cutlass/version.h; set CUTLASS_HOME" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS ${CAIRN_CUTLASS_INCLUDE}/cutlass/version.h line REGEX "#define CUTLASS_MAJOR +[0-9]+")
  string(REGEX MATCH "[0-9]+$" major "${line}")
  if(NOT major EQUAL 4)
    set(${why} "${CAIRN_CUTLASS_INCLUDE} is of version ${major}" PARENT_SCOPE)
  elseif(NOT "90a" IN_LIST CAIRN_CUDA_ARCHITECTURES)
    set(${why} "CAIRN_CUDA_ARCHITECTURES is ${CAIRN_CUDA_ARCHITECTURES}" PARENT_SCOPE)
  else()
    set(${found} ON PARENT_SCOPE)
  endif()
endfunction()

# For CAIRN_CUDA_ARCHITECTURES, or those that are named. --fmad=false: a·b + c is never contracted, as with
# -ffp-contract=off elsewhere.
function(cairn_cuda_flags flags)
  set(architectures ${CAIRN_CUDA_ARCHITECTURES})
  if(ARGN)
    set(architectures ${ARGN})
  endif()
  # 128: a loop that one instance of a template cannot reach
  set(list -std=c++17 -O2 -lineinfo --fmad=false -diag-suppress 128 -D_GNU_SOURCE -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}
      -I${CMAKE_SOURCE_DIR}/kernels/cuda/gpu
      -Xcompiler=-fPIC,-ffp-contract=off,-Wall,-Wextra,-Wshadow -ccbin ${CMAKE_C_COMPILER})
  if(CAIRN_WERROR)
    list(APPEND list -Werror all-warnings -Xcompiler=-Werror)
  endif()
  if(HAVE_CUDNN)
    list(APPEND list -isystem ${CAIRN_CUDNN_INCLUDE})
  endif()
  foreach(architecture ${architectures})
    if(NOT architecture MATCHES "^([0-9]+[af]?)(-virtual)?$")
      message(FATAL_ERROR "CAIRN_CUDA_ARCHITECTURES has '${architecture}'; expected 80, 90a, 80-virtual or the like")
    endif()
    set(code sm_${CMAKE_MATCH_1})
    if(CMAKE_MATCH_2)
      set(code compute_${CMAKE_MATCH_1})
    endif()
    list(APPEND list -gencode arch=compute_${CMAKE_MATCH_1},code=${code})
    if(architecture MATCHES "^([0-9]+)a$") # 90a: wgmma is there
      list(APPEND list -DCAIRN_CUDA_SM${CMAKE_MATCH_1}A)
    endif()
  endforeach()
  set(${flags} "${list}" PARENT_SCOPE)
endfunction()

# The sources of kernels/cuda, for the toolkit whose headers are in the folder <headers>. For a library that is absent
# there is another file: *_absent.cu.
function(cairn_cuda_sources list headers)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
  if(HAVE_CUDNN)
    list(FILTER sources EXCLUDE REGEX "/sdpa_absent\\.cu$")
  else()
    list(FILTER sources EXCLUDE REGEX "/sdpa(_graph)?\\.cu$")
  endif()
  if(HAVE_CUTLASS)
    list(FILTER sources EXCLUDE REGEX "/fused_gelu_absent\\.cu$")
  else()
    list(FILTER sources EXCLUDE REGEX "/fused_gelu_cutlass\\.cu$")
  endif()
  if(EXISTS ${headers}/nvtx3/nvToolsExt.h)
    list(FILTER sources EXCLUDE REGEX "/nvtx_absent\\.cu$")
  else()
    list(FILTER sources EXCLUDE REGEX "/nvtx\\.cu$")
  endif()
  set(${list} "${sources}" PARENT_SCOPE)
endfunction()

# kernels/cuda/*.cu as the module cairn_cuda.so. It needs no CUDA library to be loaded: the runtime is inside, cuBLASLt and
# the driver are loaded when the backend is opened. ptxas' reports are in kernels/cuda/*.ptxas.
function(cairn_cuda_backend)
  cairn_cuda_sources(sources ${CAIRN_CUBLASLT_INCLUDE})
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cuda)
  cairn_cuda_flags(device_flags)
  set(host_flags ${device_flags} -x c++ -include cuda_runtime.h)
  list(FILTER host_flags EXCLUDE REGEX "^(-gencode|arch=.*)$")
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    set(made ${CMAKE_CURRENT_BINARY_DIR}/cuda/${name})
    file(STRINGS ${source} device_headers REGEX "^#include .*\\.cuh\"" LIMIT_COUNT 1)
    set(flags ${host_flags}) # without device code the source is C++, compiled once and not for each architecture
    if(device_headers)
      set(flags ${device_flags} -Xptxas -v)
    endif()
    if(name STREQUAL fused_gelu_cutlass)
      cairn_cuda_flags(flags 90a)
      # NDEBUG: calls of assertions would serialise the products
      list(APPEND flags -Xptxas -v -DNDEBUG --expt-relaxed-constexpr -isystem ${CAIRN_CUTLASS_INCLUDE})
    endif()
    add_custom_command(OUTPUT ${made}.o BYPRODUCTS ${made}.ptxas
      COMMAND sh ${CMAKE_SOURCE_DIR}/cmake/logged.sh ${made}.ptxas
              ${CAIRN_NVCC} ${flags} -MD -MF ${made}.d -MT ${made}.o -c ${source} -o ${made}.o
      DEPENDS ${source} ${CMAKE_SOURCE_DIR}/cmake/logged.sh DEPFILE ${made}.d
      COMMENT "Building CUDA object ${name}.o" VERBATIM)
    set_source_files_properties(${made}.o PROPERTIES GENERATED ON EXTERNAL_OBJECT ON)
    list(APPEND objects ${made}.o)
  endforeach()
  add_library(backend_cuda MODULE ${objects})
  set_target_properties(backend_cuda PROPERTIES PREFIX "" OUTPUT_NAME cairn_cuda LINKER_LANGUAGE C
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  if(CAIRN_CUBLASLT) # where the module looks for cuBLASLt besides the system's folders
    get_filename_component(folder ${CAIRN_CUBLASLT} DIRECTORY)
    set_target_properties(backend_cuda PROPERTIES BUILD_RPATH "${folder}" INSTALL_RPATH "${folder}")
  endif()
  target_link_libraries(backend_cuda PRIVATE ${CAIRN_CUDART} stdc++ Threads::Threads ${CMAKE_DL_LIBS} rt)
  install(TARGETS backend_cuda LIBRARY DESTINATION lib/cairn OPTIONAL)
endfunction()

# External libraries. Each becomes a target cairn::<name>; each is included by one file or folder of ours only.
# WITH_<X> is AUTO (use it if found), ON (must be found) or OFF.
include(CairnCuda)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash>=0.8)
add_library(cairn::xxhash ALIAS PkgConfig::xxhash)
include(CheckCSourceCompiles) # not every build of the library chooses by processor
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::xxhash)
check_c_source_compiles("#include <xxh_x86dispatch.h>
int main(void) { return (int)XXH3_128bits_dispatch(\"\", 0).low64; }" HAVE_XXH_DISPATCH)
unset(CMAKE_REQUIRED_LIBRARIES)

function(cairn_with name description)
  set(WITH_${name} AUTO CACHE STRING "${description}: AUTO, ON or OFF")
  set_property(CACHE WITH_${name} PROPERTY STRINGS AUTO ON OFF)
  if(NOT WITH_${name} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "WITH_${name} is '${WITH_${name}}'; expected AUTO, ON or OFF")
  endif()
endfunction()

# Sets HAVE_<name> from WITH_<name> and whether the library was found, and prints it.
function(cairn_decide name found hint)
  if(WITH_${name} STREQUAL "OFF")
    set(have OFF)
  elseif(found)
    set(have ON)
  elseif(WITH_${name} STREQUAL "ON")
    message(FATAL_ERROR "WITH_${name}=ON, but it was not found. Install ${hint}, or use -DWITH_${name}=AUTO.")
  else()
    set(have OFF)
  endif()
  set(HAVE_${name} ${have} PARENT_SCOPE)
  message(STATUS "${name}: ${have}")
endfunction()

# The same for a library without pkg-config; if it is used, its target is cairn::<target>.
function(cairn_decide_library name target found hint includes libraries)
  cairn_decide(${name} ${found} "${hint}")
  set(HAVE_${name} ${HAVE_${name}} PARENT_SCOPE)
  if(HAVE_${name})
    add_library(cairn_lib${target} INTERFACE)
    target_include_directories(cairn_lib${target} SYSTEM INTERFACE ${includes})
    target_link_libraries(cairn_lib${target} INTERFACE ${libraries})
    add_library(cairn::${target} ALIAS cairn_lib${target})
  endif()
endfunction()

cairn_with(ONEDNN "oneDNN matrix products: the cpu backend")
cairn_with(CUDA "The cuda backend")
cairn_with(CUDNN "The cuda backend's attention by cuDNN")
cairn_with(HDF5 "Pretraining shards in HDF5")
cairn_with(EXPAT "Wikipedia's dumps: XML")
cairn_with(ZLIB "Dumps and text packed by gzip")
cairn_with(GLOO "Ranks over TCP")
cairn_with(NCCL "Ranks over NCCL")

find_path(DNNL_INCLUDE_DIR dnnl.h)
find_library(DNNL_LIBRARY dnnl)
find_package(OpenMP COMPONENTS C)
set(onednn_found OFF)
if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY AND OpenMP_C_FOUND)
  set(onednn_found ON)
endif()
cairn_decide_library(ONEDNN dnnl ${onednn_found} "libdnnl-dev and OpenMP" "${DNNL_INCLUDE_DIR}" "${DNNL_LIBRARY}")

# Debian's name is hdf5-serial where other variants are installed beside it.
pkg_search_module(hdf5 QUIET IMPORTED_TARGET hdf5-serial>=1.10.2 hdf5>=1.10.2)
cairn_decide(HDF5 "${hdf5_FOUND}" "libhdf5-dev")
if(HAVE_HDF5)
  add_library(cairn::hdf5 ALIAS PkgConfig::hdf5)
endif()

# Builds with sanitizers or coverage run the kernels on the host executor (tests/cuda_host); AUTO leaves the backend out.
set(cuda_found OFF)
if(WITH_CUDA STREQUAL "OFF")
  set(cuda_why "WITH_CUDA=OFF")
elseif(WITH_CUDA STREQUAL "AUTO" AND (CAIRN_ASAN OR CAIRN_COVERAGE OR CAIRN_FUZZ))
  set(cuda_why "builds for sanitizers, coverage and fuzzing leave it out")
else()
  cairn_find_cuda(cuda_found cuda_why)
endif()
if(NOT cuda_found AND NOT WITH_CUDA STREQUAL "ON")
  message(STATUS "The cuda backend is not built: ${cuda_why}")
endif()
cairn_decide(CUDA ${cuda_found} "the CUDA toolkit (nvcc, cublasLt.h, libcudart_static.a; ${cuda_why})")

# Only cuDNN's header is needed: --attention cudnn loads the library. The host executor is built with it too, where nvcc
# is missing.
cairn_find_cudnn(cudnn_found cudnn_why)
if(NOT cudnn_found AND WITH_CUDNN STREQUAL "AUTO")
  message(STATUS "--attention cudnn is not built: ${cudnn_why}")
endif()
cairn_decide(CUDNN ${cudnn_found} "cuDNN 9.18.1 or newer for developers (cudnn.h; ${cudnn_why})")

# Libraries of C without files for CMake or pkg-config, each behind one file.
function(cairn_plain_library name target header library hint)
  find_path(${name}_HEADER ${header})
  find_library(${name}_LIBRARY_FILE ${library})
  set(found OFF)
  if(${name}_HEADER AND ${name}_LIBRARY_FILE)
    set(found ON)
  endif()
  cairn_decide_library(${name} ${target} ${found} "${hint}" "${${name}_HEADER}" "${${name}_LIBRARY_FILE}")
  set(HAVE_${name} ${HAVE_${name}} PARENT_SCOPE)
endfunction()
cairn_plain_library(EXPAT expat expat.h expat libexpat1-dev)
cairn_plain_library(ZLIB zlib zlib.h z zlib1g-dev)

# Transports of ranks. Gloo's module is C++; its own CMake files name a target `gloo`.
include(CheckLanguage)
find_path(GLOO_INCLUDE_DIR gloo/rendezvous/context.h)
find_library(GLOO_LIBRARY gloo)
set(gloo_found OFF)
if(GLOO_INCLUDE_DIR AND GLOO_LIBRARY AND NOT WITH_GLOO STREQUAL "OFF")
  check_language(CXX)
  if(CMAKE_CXX_COMPILER)
    set(gloo_found ON)
  endif()
endif()
cairn_decide_library(GLOO gloo ${gloo_found} "libgloo-dev and a C++ compiler" "${GLOO_INCLUDE_DIR}" "${GLOO_LIBRARY}")

# In the Gloo of 2020 (Ubuntu 22.04) a rank whose peer is killed may stand still (docs/network.md). A macro of 2021 tells.
set(GLOO_MAY_HANG OFF)
if(HAVE_GLOO AND EXISTS ${GLOO_INCLUDE_DIR}/gloo/config.h)
  file(STRINGS ${GLOO_INCLUDE_DIR}/gloo/config.h newer REGEX GLOO_HAVE_TRANSPORT_TCP_TLS)
  if(NOT newer)
    set(GLOO_MAY_HANG ON)
  endif()
endif()

# NCCL's header includes CUDA's. Its module is compiled as C; it runs where there are GPUs.
set(cuda_places $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${cuda_places} PATH_SUFFIXES include)
find_path(NCCL_CUDA_INCLUDE_DIR cuda_runtime.h HINTS ${cuda_places} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${cuda_places} PATH_SUFFIXES lib64 lib)
set(nccl_found OFF)
if(NCCL_INCLUDE_DIR AND NCCL_CUDA_INCLUDE_DIR AND NCCL_LIBRARY)
  set(nccl_found ON)
endif()
cairn_decide_library(NCCL nccl ${nccl_found} "NCCL (nccl.h, libnccl.so) and the CUDA toolkit's headers"
                     "${NCCL_INCLUDE_DIR};${NCCL_CUDA_INCLUDE_DIR}" "${NCCL_LIBRARY}")

# Language, warnings and build flavours.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug" FORCE)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")

option(CAIRN_WERROR "Warnings are errors; for developers" OFF)
option(CAIRN_ASAN "AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(CAIRN_COVERAGE "Count executed lines and branches" OFF)
option(CAIRN_FUZZ "Build the libFuzzer targets (clang)" OFF)

add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
                    -fno-math-errno -ffp-contract=off)
# No -ffast-math: the same source must give the same bits. Kernels that need fused operations call them.
if(CAIRN_WERROR)
  add_compile_options(-Werror)
endif()
if(CAIRN_ASAN)
  set(CMAKE_C_FLAGS_RELEASE "-O1 -g1") # compiles in half the time of -O2
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(CAIRN_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()
if(CAIRN_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "CAIRN_FUZZ=ON needs clang, for libFuzzer; the compiler is ${CMAKE_C_COMPILER_ID}. "
                        "Use: cmake --preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_compile_definitions(CAIRN_FUZZ)
endif()
add_compile_definitions(_GNU_SOURCE CAIRN_VERSION="${PROJECT_VERSION}")

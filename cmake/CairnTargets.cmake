set(CMAKE_OPTIMIZE_DEPENDENCIES ON) # an archive is made without waiting for those that it uses

# cairn_library(name DIR d... [USES other...] [EXTERNAL lib...] [EXCEPT file...]): every .c of a folder except those named, as
# one static library cairn_<name>.
function(cairn_library name)
  cmake_parse_arguments(ARG "" "" "DIR;USES;EXTERNAL;EXCEPT" ${ARGN})
  list(TRANSFORM ARG_DIR REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/\\1/*.c")
  file(GLOB sources CONFIGURE_DEPENDS ${ARG_DIR})
  list(TRANSFORM ARG_EXCEPT PREPEND "${CMAKE_SOURCE_DIR}/")
  if(ARG_EXCEPT)
    list(REMOVE_ITEM sources ${ARG_EXCEPT})
  endif()
  add_library(cairn_${name} STATIC ${sources})
  add_library(${name} ALIAS cairn_${name})
  target_include_directories(cairn_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
  foreach(used ${ARG_USES})
    target_link_libraries(cairn_${name} PUBLIC cairn_${used})
  endforeach()
  foreach(lib ${ARG_EXTERNAL})
    target_link_libraries(cairn_${name} PRIVATE cairn::${lib})
  endforeach()
  target_link_libraries(cairn_${name} PRIVATE Threads::Threads m ${CMAKE_DL_LIBS})
endfunction()

# A program that loads backends: it exports its symbols and contains all of base and kernels, which the modules use.
function(cairn_host target)
  set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON)
  target_link_libraries(${target} PRIVATE -Wl,--whole-archive cairn_base cairn_kernels -Wl,--no-whole-archive)
  if(CAIRN_ASAN)
    target_link_libraries(${target} PRIVATE asan_options)
  endif()
endfunction()

# cairn_backend(name): kernels/<name>/*.c as the module cairn_<name>.so, beside the program in the build tree and in
# lib/cairn when installed.
function(cairn_backend name)
  cmake_parse_arguments(ARG "" "" "EXTERNAL" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.c)
  add_library(backend_${name} MODULE ${sources})
  set_target_properties(backend_${name} PROPERTIES PREFIX "" OUTPUT_NAME cairn_${name}
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_include_directories(backend_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
  foreach(lib ${ARG_EXTERNAL})
    target_link_libraries(backend_${name} PRIVATE cairn::${lib})
  endforeach()
  install(TARGETS backend_${name} LIBRARY DESTINATION lib/cairn OPTIONAL)
endfunction()

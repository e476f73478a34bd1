cmake_minimum_required(VERSION 3.25)
# cmake -D FROM=kernels -D TO=DIR [-D LIBRARIES=a.so;b.so] -P assemble.cmake: makes TO a copy of what runs inside, and nothing else.
# Left out: documents, tests, the build's own files, sources of libraries. Libraries go to TO/zygote.
file(MAKE_DIRECTORY ${TO})
file(GLOB_RECURSE found RELATIVE ${FROM} LIST_DIRECTORIES false ${FROM}/*)
set(wanted)
foreach(path IN LISTS found)
  if(path MATCHES "(^|/)(tests?|testdata|__pycache__|node_modules|\\.[^/]*)(/|$)" OR
     path MATCHES "\\.(md|pyc|cmake)$" OR path MATCHES "(^|/)CMakeLists\\.txt$" OR
     path MATCHES "(^|/)test_[^/]*$" OR path MATCHES "[._]test\\.[^/.]*$" OR
     path MATCHES "^zygote/.*\\.(c|cc|h)$")
    continue()
  endif()
  if(IS_SYMLINK ${FROM}/${path})
    message(FATAL_ERROR "kernels/${path} is a link")
  endif()
  list(APPEND wanted ${path})
  get_filename_component(folder ${TO}/${path} DIRECTORY)
  file(COPY ${FROM}/${path} DESTINATION ${folder})
endforeach()
foreach(library IN LISTS LIBRARIES)
  get_filename_component(name ${library} NAME)
  list(APPEND wanted zygote/${name})
  file(COPY ${library} DESTINATION ${TO}/zygote)
endforeach()

file(GLOB_RECURSE present RELATIVE ${TO} LIST_DIRECTORIES false ${TO}/*)
foreach(path IN LISTS present)
  if(NOT path IN_LIST wanted)
    file(REMOVE ${TO}/${path})
  endif()
endforeach()

# Toolchain file for the browser build: clang 19 with Debian's libc++-19-dev-wasm32 and wasi-libc.
#
#   cmake -B build-wasm -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/wasm.cmake && ninja -C build-wasm
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasi)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_EXECUTABLE_SUFFIX .wasm)

# The packages have no runtime for exceptions and no threads. Shapes and file offsets are 64 bits wide, memory 32: what
# is allocated was checked to fit, so the sizes of spans over it may be narrowed.
set(CMAKE_CXX_FLAGS_INIT "-fno-exceptions -fno-rtti -msimd128 -Wno-c++11-narrowing")
# The optimisation level is given to the compiler alone: where the linker's command line has one, clang runs whatever
# wasm-opt it finds in PATH. src/web/CMakeLists.txt runs the pinned one.
set(CMAKE_CXX_FLAGS_RELEASE "-DNDEBUG" CACHE STRING "flags of Release builds")
add_compile_options($<$<CONFIG:Release>:-O2>)

pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
lily_fuzz(fuzz_cache_file SOURCES fuzz_cache_file.cpp DEPENDS lily_engine PkgConfig::XXHASH)

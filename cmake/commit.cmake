# Writes OUTPUT with the commit that SOURCE stands at, "-dirty" where files differ from it; run at every build, so that
# a measurement names what it measured. The file is touched only when that changes.
execute_process(
  COMMAND git --no-optional-locks describe --always --dirty --abbrev=12 --exclude=*
  WORKING_DIRECTORY ${SOURCE}
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define LILY_COMMIT \"${commit}\"\n")

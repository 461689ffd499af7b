lily_fuzz(fuzz_safetensors SOURCES fuzz_safetensors.cpp DEPENDS lily_checkpoint)
lily_fuzz(fuzz_config SOURCES fuzz_config.cpp DEPENDS lily_checkpoint)

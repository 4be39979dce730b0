"""The door to NVML. Only modules of this package import pynvml, and know the traps of that binding."""

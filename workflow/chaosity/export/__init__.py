"""Export measurements for hwloc's programs, the kernel's interleaving, and schedulers."""

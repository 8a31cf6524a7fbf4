"""Virtual machines with NUMA nodes and drives, described as data. Standard library alone.

A machine is a folder; see `virtual_lab.folder` for what is in it. `virtual_lab.power` switches it
on and off.
"""

"""Virtual machines with NUMA nodes and drives, described as data; needs only the standard library.

Each machine has a folder, whose files `virtual_lab.machine_folder` lists.
`virtual_lab.power_switch` switches the machine on and off.
"""

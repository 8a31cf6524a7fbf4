"""Points and records: the request of a measurement, and its result.

A point is planned on the controller and measured on a host. A record has the point, the exact
command lines, the tools' raw output, versions, the placement that the kernel reported, the host's
state before and after, time stamps, and a verdict with every check. A record contains no derived
number: values are computed from the raw output each time, so a better computation needs no new
measurement.

`chaosity.records` and the runner use the standard library alone, because they are copied to hosts.
"""

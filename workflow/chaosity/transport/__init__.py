"""Reach the runner on a host from the controller: directly, over OpenSSH, or through Slurm.

``TRANSPORT chaosity-run < point.json > record.json``: a transport is a command line, kept as JSON
in ``results/<host>/host.json``. This Python package uses the standard library alone, since one of
its programs starts for every measurement.
"""

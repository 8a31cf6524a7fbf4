"""How the controller reaches the runner on a host: directly, over OpenSSH, or through Slurm.

``TRANSPORT chaosity-run < point.json > record.json``: a transport is a command line, kept as JSON
in ``results/<host>/host.json``. This room uses the standard library alone, since one of its
programs starts for every measurement.
"""

from chaosity.transport.runner_command import LOCAL, SLURM, SSH, Transport

__all__ = ["LOCAL", "SLURM", "SSH", "Transport"]

"""DeepSpeed's contract: PyTorch's, for torchrun starts it as well, and a hostfile for its own launcher.

`deepspeed --no_ssh --node_rank=$(PET_NODE_RANK) --master_addr=$(MASTER_ADDR) --hostfile=/etc/closeknit/hostfile` starts
one node's ranks and needs no ssh (deepspeed/launcher/runner.py); Kubernetes puts the values in. The file is not at
/job/hostfile, where the launcher looks by itself: there a job on one node would need ssh. For ssh use the
framework MPI, which has the same file.
"""

from closeknit.launch.frameworks import pytorch
from closeknit.launch.frameworks.contract import Contract
from closeknit.launch.frameworks.hostfile import hostfile

CONTRACT = Contract(pytorch.variables, files=hostfile)

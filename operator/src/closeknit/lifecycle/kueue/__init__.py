"""What closeknit writes of Kueue's Workloads: one for each job in a LocalQueue, and what became of the job.

Invariant: quota is given back only once none of the job's Pods holds anything.
"""

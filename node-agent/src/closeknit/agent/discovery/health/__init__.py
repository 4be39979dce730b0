"""What is wrong with each GPU and with the machine, from readings over time.

Invariant: a fact that could not be read makes nothing unhealthy.
"""

"""The kubelet as a source: who holds which GPUs."""

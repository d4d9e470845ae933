"""What makes reconciling a process: queue, workers, leadership, resync, events, metrics, health."""

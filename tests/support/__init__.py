"""What tests share: data, models, servers and planted faults."""
